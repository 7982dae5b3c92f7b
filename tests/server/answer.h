// A client's report as a test sends it: two coordinates, in one part.
#ifndef LEEWAY_TESTS_SERVER_ANSWER_H_
#define LEEWAY_TESTS_SERVER_ANSWER_H_

#include <array>
#include <string>

#include "common/digest.h"
#include "proto/federation.pb.h"
#include "tests/named_report.h"

namespace leeway {

// A right answer to an order.
inline v1::Part Answer(const v1::Order& order, const std::string& client,
                       std::array<double, 2> values = {0.5, -0.25}) {
  v1::Part part;
  v1::ReportHeader& header = *part.mutable_header();
  header.set_run_id(order.run_id());
  header.set_round(order.round());
  header.set_attempt(order.attempt());
  header.add_clients(client);
  header.set_base_sha256(order.model().sha256());
  const TaskSums sums(order.task(), values.size());
  NamedReport<> report(sums);
  if (sums.vector(kDisplacement) != TaskSums::kNone) {
    report.Set(kDisplacement, Vector<double>({{values[0], values[1]}}));
  }
  if (sums.number(kLoss) != TaskSums::kNone) report.Set(kLoss, 1);
  report.Derive();
  part.set_data(report.Write(header));
  header.set_payload_hash(Xxh3(part.data()));
  return part;
}

}  // namespace leeway

#endif  // LEEWAY_TESTS_SERVER_ANSWER_H_
