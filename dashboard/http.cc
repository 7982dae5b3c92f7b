#include "dashboard/http.h"

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/credentials.h"
#include "common/mutex.h"
#include "common/status.h"
#include "dashboard/assets.h"
#include "dashboard/http_server.h"

namespace leeway {
namespace {

// Every open page holds a thread; the others are for everything else, and they are free
// again as soon as an answer is sent.
constexpr int kMostWatchers = 24;
constexpr size_t kThreads = 32;
// A line now and then shows a page that the connection lives, and us that the page does.
constexpr absl::Duration kHeartbeat = absl::Seconds(10);
constexpr absl::Duration kFarewell = absl::Seconds(3);
// Nothing but our own files, and no way to put the page into another one.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct Address {
  std::string host = "127.0.0.1";
  int port = 0;
};

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  Address address;
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos) address.host = text.substr(0, colon);
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  if (!absl::SimpleAtoi(port, &address.port) || address.port < 0 || address.port > 65535 ||
      address.host.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dashboard is '", text,
                     "'; give a port, such as 8760, or HOST:PORT, such as 0.0.0.0:8760"));
  }
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  return address;
}

// The host of a Host header, without the port.
std::string HostName(const std::string& header) {
  const size_t bracket = header.rfind(']');
  const size_t colon = header.rfind(':');
  if (colon == std::string::npos || (bracket != std::string::npos && colon < bracket))
    return header;
  return header.substr(0, colon);
}

class HttpDashboard : public Dashboard {
 public:
  HttpDashboard(Options options, Address address)
      : address_(std::move(address)),
        metrics_(std::move(options.metrics)),
        feed_(std::move(options.feed)) {}

  ~HttpDashboard() override { Stop(); }

  absl::Status Listen() {
    server_.set_default_headers({{"Content-Security-Policy", kPolicy},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"Referrer-Policy", "no-referrer"},
                                 {"Cross-Origin-Resource-Policy", "same-origin"},
                                 {"Cache-Control", "no-store"}});
    Route();
    const absl::StatusOr<int> port = server_.Start(address_.host, address_.port, kThreads);
    if (!port.ok()) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address_.host, ":", address_.port,
                       " for the dashboard; is the port in use? Choose another, or port 0 for "
                       "any free one"));
    }
    const bool v6 = address_.host.find(':') != std::string::npos;
    url_ = absl::StrCat("http://", v6 ? "[" : "", address_.host, v6 ? "]" : "", ":", *port, "/");
    return absl::OkStatus();
  }

  const std::string& url() const override { return url_; }
  Feed& feed() override { return feed_; }

  void Stop() override {
    if (stopped_) return;
    stopped_ = true;
    feed_.Close();
    {
      MutexLock lock(&mu_);
      const auto alone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return watchers_ == 0; };
      mu_.AwaitWithTimeout(absl::Condition(&alone), kFarewell);
      stopping_ = true;
    }
    server_.Stop();
  }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;

  void Route() {
    server_.set_pre_routing_handler([this](const Request& request, Response& response) {
      // Before a body is read: there is nothing to send us.
      if (request.method != "GET" && request.method != "HEAD") {
        response.status = 405;
        response.set_header("Allow", "GET, HEAD");
        response.set_content("This dashboard is read-only.\n", "text/plain");
        return HttpServer::HandlerResponse::Handled;
      }
      // Another site's name that was made to point here (DNS rebinding) must not
      // let that site read us.
      if (!IsLoopback(address_.host) || IsLoopback(HostName(request.get_header_value("Host")))) {
        return HttpServer::HandlerResponse::Unhandled;
      }
      response.status = 421;
      response.set_content("This dashboard is served on loopback only.\n", "text/plain");
      return HttpServer::HandlerResponse::Handled;
    });
    for (const Asset& asset : Assets()) {
      server_.Get(std::string(asset.path), [asset](const Request&, Response& response) {
        response.set_content(asset.bytes.data(), asset.bytes.size(), std::string(asset.type));
      });
    }
    server_.Get("/api/run", [this](const Request&, Response& response) {
      response.set_content(feed_.Json(), "application/json");
    });
    server_.Get("/events",
                [this](const Request& request, Response& response) { Watch(request, response); });
    if (metrics_) {
      server_.Get("/metrics", [this](const Request&, Response& response) {
        response.set_content(metrics_(), "text/plain; version=0.0.4; charset=utf-8");
      });
    }
  }

  // One page: server-sent events until it leaves or the run is over.
  void Watch(const Request& request, Response& response) {
    {
      MutexLock lock(&mu_);
      if (watchers_ == kMostWatchers || stopping_) {
        response.status = 503;
        response.set_header("Retry-After", "5");
        response.set_content("Too many pages watch this run; close some.\n", "text/plain");
        return;
      }
      ++watchers_;
    }
    std::string id = request.get_header_value("Last-Event-ID");
    if (id.empty()) id = request.get_param_value("after");
    auto cursor = std::make_shared<Cursor>(Cursor::Parse(id));
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, cursor](size_t, httplib::DataSink& sink) { return Send(*cursor, sink); },
        [this](bool) {
          MutexLock lock(&mu_);
          --watchers_;
        });
  }

  bool Send(Cursor& cursor, httplib::DataSink& sink) {
    const std::optional<std::string> news = feed_.Next(cursor, kHeartbeat);
    std::string text = ": still here\n\n";
    if (news.has_value()) {
      text = absl::StrCat("retry: 1000\nid: ", cursor.Id(), "\ndata: ", *news, "\n\n");
    }
    const bool ended = feed_.Ended(cursor);
    // A page whose run goes on with the next server waits for that one.
    if (ended && feed_.Over()) absl::StrAppend(&text, "event: end\ndata: {}\n\n");
    if (!sink.write(text.data(), text.size())) return false;
    if (ended) sink.done();
    return true;
  }

  const Address address_;
  const std::function<std::string()> metrics_;
  Feed feed_;
  std::string url_;
  HttpServer server_;
  bool stopped_ = false;  // by whoever owns it

  Mutex mu_;
  int watchers_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dashboard>> Dashboard::Start(Options options) {
  LEEWAY_ASSIGN_OR_RETURN(Address address, ParseAddress(options.listen));
  auto dashboard = std::make_unique<HttpDashboard>(std::move(options), std::move(address));
  LEEWAY_RETURN_IF_ERROR(dashboard->feed().Refresh());
  LEEWAY_RETURN_IF_ERROR(dashboard->Listen());
  return dashboard;
}

}  // namespace leeway
