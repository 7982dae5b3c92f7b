// Answers an order: lets the worker compute, takes every report through the steps that
// the task asks for, adds up the reports of several clients, and writes the header.
#ifndef LEEWAY_CLIENT_ANSWER_H_
#define LEEWAY_CLIENT_ANSWER_H_

#include <grpcpp/support/slice.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/worker.h"
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

}  // namespace leeway

#endif  // LEEWAY_CLIENT_ANSWER_H_
