#include "cli/health.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/run.h"

namespace leeway {
namespace {

// grpc.health.v1.HealthCheckResponse { status: SERVING }. Debian ships no header for
// these two messages; the request, for the whole server, is empty.
constexpr char kServing[] = "\x08\x01";

int Fail(int code, absl::string_view text) {
  absl::FPrintF(stderr, "leeway: %s\n", text);
  return code;
}

}  // namespace

int HealthCommand(const HealthOptions& options) {
  const auto credentials =
      ChannelCredentials(options.tls, options.server, options.insecure_anywhere);
  if (!credentials.ok()) return Fail(kExitUsage, credentials.status().message());
  grpc::GenericStub stub(grpc::CreateChannel(options.server, *credentials));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(options.seconds)));
  grpc::CompletionQueue queue;
  const grpc::Slice empty;
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                          grpc::ByteBuffer(&empty, 1), &queue);
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) {
    return Fail(kExitFailed, absl::StrCat("no healthy server on ", options.server, ": ",
                                          status.error_message()));
  }
  grpc::Slice slice;
  const std::string text = answer.DumpToSingleSlice(&slice).ok()
                               ? std::string(slice.begin(), slice.end())
                               : std::string();
  if (text != kServing) {
    return Fail(kExitFailed, absl::StrCat("the server on ", options.server, " does not serve now"));
  }
  absl::PrintF("serving\n");
  return kExitOk;
}

}  // namespace leeway
