// Answers an order: lets the worker compute, takes every report through the steps that
// the task asks for, adds up the reports of several clients, and writes the header.
#ifndef LEEWAY_CLIENT_ANSWER_H_
#define LEEWAY_CLIENT_ANSWER_H_

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/worker.h"
#include "common/tally.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

// What is sent back: the report of one client, or the exact sum of several.
struct Answer {
  v1::ReportHeader header;
  grpc::Slice payload;
};

// A client that fails is left out and named in the header; only an order that makes no
// sense is an error. `seed` is the run's.
absl::StatusOr<Answer> AnswerOrder(Worker& worker, const v1::Order& order,
                                   const OrderModels& models, uint64_t seed);
using AnswerFunction = std::function<decltype(AnswerOrder)>;

// The exact sum of an order's clients, before it is written: several processes may merge
// theirs first.
struct SummedAnswer {
  v1::ReportHeader header;  // all but what describes the payload
  Tally total;
  std::vector<double> seconds;  // that each client took, by place in the order
  double wall = 0;              // until the last of them was done
};

// Like AnswerOrder, as a sum even for a single client, or for none.
absl::StatusOr<SummedAnswer> SumOrder(Worker& worker, const v1::Order& order,
                                      const OrderModels& models, uint64_t seed);
// Its integers, for the one thing that changes them from outside: adding up those of several
// processes where they lie.
absl::Span<int64_t> Integers(Tally& total);
// The answer that carries the sum, without copying it.
Answer WriteSum(v1::ReportHeader header, Tally total);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_ANSWER_H_
