// A client's report as a test sends it: two coordinates, in one part.
#ifndef LEEWAY_TESTS_SERVER_ANSWER_H_
#define LEEWAY_TESTS_SERVER_ANSWER_H_

#include <array>
#include <string>

#include "common/digest.h"
#include "proto/federation.pb.h"

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
  header.set_encoding(v1::FLOAT64);
  header.add_scalars(1.0);
  header.add_scalars(1.0);
  header.set_weight(1);
  part.set_data(std::string(reinterpret_cast<const char*>(values.data()), sizeof values));
  header.set_payload_size(part.data().size());
  header.set_payload_hash(Xxh3(part.data()));
  return part;
}

}  // namespace leeway

#endif  // LEEWAY_TESTS_SERVER_ANSWER_H_
