// RunMember: this process's part in a run, whichever stream its orders come by. It knows
// which run the worker is prepared for, and keeps the last answer until there is a newer
// one: a server that was restarted, or whose stream broke, asks for it again. For one
// thread.
#ifndef LEEWAY_CLIENT_RUN_MEMBER_H_
#define LEEWAY_CLIENT_RUN_MEMBER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/answer.h"
#include "client/client_log.h"
#include "client/model_fetch.h"
#include "client/worker.h"
#include "proto/federation.pb.h"

namespace leeway {

class RunMember {
 public:
  // The worker and the log outlive this.
  RunMember(Worker& worker, AnswerFunction answer, std::shared_ptr<grpc::Channel> channel,
            ClientLog& log)
      : worker_(worker),
        answer_(std::move(answer)),
        log_(log),
        models_(worker, std::move(channel)) {}

  // Before the first order: can the worker compute the run's model?
  absl::Status Prepare(const v1::Welcome& welcome);
  // An order with a welcome. A server that was gone may come back with another run: then
  // nothing of the old one counts any more. A run's id stands for all its settings.
  absl::Status Enter(const v1::Order& order);
  // Computes the report that `order` asks for and keeps it as last(); does nothing if last() is
  // that report. False if the order's round is over, so that nobody waits for a report.
  absl::StatusOr<bool> Answer(const v1::Order& order);
  const leeway::Answer& last() const { return last_; }
  const ClientLog& log() const { return log_; }

 private:
  // The last answer is to this order: made before the server restarted, or before we had to
  // join again.
  bool IsAnswered(const v1::Order& order) const;

  void LogAnswer(absl::Duration took) const;

  Worker& worker_;
  const AnswerFunction answer_;
  ClientLog& log_;
  ModelFetch models_;
  std::string prepared_;  // the welcome that Prepare was called with, until a run begins
  std::string run_id_;    // of the run that worker_ is prepared for
  uint64_t seed_ = 0;
  leeway::Answer last_;
  uint64_t last_task_ = 0;  // digest of the task that it answers
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_RUN_MEMBER_H_
