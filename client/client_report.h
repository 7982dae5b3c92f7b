// One client's answer to a task: its sums, in the task's order. The vectors are in
// the model's own precision: what is added to a tally is the same whether it was sent
// as it is or summed in this process first.
#ifndef LEEWAY_CLIENT_CLIENT_REPORT_H_
#define LEEWAY_CLIENT_CLIENT_REPORT_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace leeway {

template <typename T>
struct ClientReport {
  uint64_t weight = 1;
  std::vector<double> numbers;  // all of them, also those that follow from the others
  std::vector<T> vectors;       // one after the other
  std::string encoded;          // the vectors as they are sent, in a short encoding
};

// In the precision of the model.
using AnyReport = std::variant<ClientReport<double>, ClientReport<float>>;

}  // namespace leeway

#endif  // LEEWAY_CLIENT_CLIENT_REPORT_H_
