// Connection: a hosting process's life in a run: join, do orders, send reports,
// join again when the server or the network was gone, until the run is over.
#ifndef LEEWAY_CLIENT_CONNECTION_H_
#define LEEWAY_CLIENT_CONNECTION_H_

#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/answer.h"
#include "client/worker.h"
#include "common/log.h"
#include "common/mutex.h"

namespace leeway {

struct ConnectionOptions {
  std::string server;  // host:port or unix:path
  std::string name;    // of this process, for the server's log
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  absl::Duration give_up = absl::Seconds(60);  // without a server for so long: an error
  // Held while an order is answered, until the server has heard of a failure: whoever ends this
  // process from another thread waits for it.
  std::shared_ptr<Mutex> answering = std::make_shared<Mutex>();
  AnswerFunction answer = AnswerOrder;  // several processes may answer as one
  Log* log = nullptr;                   // gets a line for everything that happens; optional
};

// Blocks until the run is over (OK), has failed (Aborted, with its reason) or cannot go on
// for this process: refused by the server, or the server out of reach for longer than give_up.
absl::Status TakePart(Worker& worker, const ConnectionOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_CONNECTION_H_
