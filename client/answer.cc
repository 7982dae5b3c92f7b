#include "client/answer.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/report_step.h"
#include "client/work_times.h"
#include "common/digest.h"
#include "common/encoding.h"
#include "common/mutex.h"
#include "common/rng.h"
#include "common/status.h"
#include "common/sums.h"
#include "common/tally.h"

namespace leeway {
namespace {

// A slice over a container's memory that owns it. gRPC may let go of it on another
// thread.
template <typename Container>
grpc::Slice OwningSlice(Container values) {
  auto* owner = new Container(std::move(values));
  HandOver(owner);
  return grpc::Slice(
      owner->data(), owner->size() * sizeof(typename Container::value_type),
      [](void* p) {
        TakeOver(p);
        delete static_cast<Container*>(p);
      },
      owner);
}

// A tally as a container of its integers.
struct TallyBytes {
  using value_type = int64_t;
  Tally tally;
  int64_t* data() { return Integers(tally).data(); }
  size_t size() const { return tally.flat().size(); }
};

size_t DimensionOf(const Parameters& model) {
  return std::visit([](const auto& values) { return static_cast<size_t>(values.size()); }, model);
}

void DescribePayload(Answer& answer) {
  answer.header.set_payload_size(answer.payload.size());
  answer.header.set_payload_hash(
      Xxh3({reinterpret_cast<const char*>(answer.payload.begin()), answer.payload.size()}));
}

// The reports of one order, as they come.
class Gathering {
 public:
  // With `summed`, the reports are added up even if there is only one.
  Gathering(const Worker& worker, const v1::Order& order, size_t dimension, uint64_t seed,
            bool summed)
      : worker_(worker),
        order_(order),
        seed_(seed),
        summed_(summed),
        sums_(order.task(), dimension),
        steps_(StepsFor(order.task())),
        outcomes_(static_cast<size_t>(order.clients_size())),
        times_(outcomes_.size(), worker.threads()) {
    if (!alone()) total_.Reset(sums_.shape());
  }

  // One client's report goes through the steps and is kept, or added up.
  void Add(size_t place, absl::StatusOr<AnyReport> report) {
    outcomes_[place] = report.ok()
                           ? std::visit([&](auto& own) { return Take(place, own); }, *report)
                           : report.status();
    times_.Done(place);
  }

  Answer Finish() && {
    v1::ReportHeader header = Header();
    if (!alone()) {
      return WriteSum(std::move(header), std::move(total_));
    }
    Answer answer;
    answer.header = std::move(header);
    if (answer.header.clients().empty()) return answer;
    answer.payload =
        std::visit([&](auto& own) { return WriteSingle(own, answer.header); }, *single_);
    DescribePayload(answer);
    return answer;
  }
  SummedAnswer Sum() && { return {Header(), std::move(total_), times_.seconds(), times_.wall()}; }
  const std::vector<double>& seconds() const { return times_.seconds(); }

 private:
  bool alone() const { return !summed_ && outcomes_.size() == 1; }
  uint32_t ClientAt(size_t place) const { return order_.clients(static_cast<int>(place)); }
  uint32_t GroupAt(size_t place) const {
    return order_.groups().empty() ? 0 : order_.groups(static_cast<int>(place));
  }

  v1::ReportHeader Header() const {
    v1::ReportHeader header;
    header.set_run_id(order_.run_id());
    header.set_round(order_.round());
    header.set_attempt(order_.attempt());
    header.set_base_sha256(order_.model().sha256());
    header.set_encoding(v1::TALLY);
    for (size_t place = 0; place < outcomes_.size(); ++place) {
      const std::string id = worker_.ClientId(ClientAt(place));
      if (outcomes_[place].ok()) {
        header.add_clients(id);
      } else {
        v1::ClientFailure& failure = *header.add_failures();
        failure.set_client(id);
        failure.set_message(std::string(outcomes_[place].message()));
      }
    }
    header.set_busy_seconds(times_.busy());
    header.set_idle_seconds(times_.idle());
    return header;
  }

  template <typename T>
  absl::Status Take(size_t place, ClientReport<T>& report) {
    if (!steps_.empty() && !(only_limit_ && IsShort(report, order_.task(), sums_))) {
      const ReportContext context{order_.task(), sums_, seed_, order_.round(),
                                  ClientKey(worker_.ClientId(ClientAt(place)))};
      for (const std::unique_ptr<ReportStep>& step : steps_) {
        LEEWAY_RETURN_IF_ERROR(step->Apply(context, report));
      }
    }
    if (alone()) {
      single_ = std::move(report);
      return absl::OkStatus();
    }
    const std::lock_guard lock(mu_);  // integer sums: the order of arrival leaves no trace
    return total_.Add<T>(GroupAt(place), report.weight, report.numbers, report.vectors);
  }

  template <typename T>
  grpc::Slice WriteSingle(ClientReport<T>& report, v1::ReportHeader& header) {
    header.set_encoding(EncodingFor(order_.task().encoding(), std::is_same_v<T, double>));
    for (const double number : sums_.Sent(report.numbers)) header.add_numbers(number);
    header.set_weight(report.weight);
    header.set_group(GroupAt(0));
    if (order_.task().encoding() != v1::EXACT) return OwningSlice(std::move(report.encoded));
    return OwningSlice(std::move(report.vectors));
  }

  const Worker& worker_;
  const v1::Order& order_;
  const uint64_t seed_;
  const bool summed_;
  const TaskSums sums_;
  const std::vector<std::unique_ptr<ReportStep>> steps_;
  const bool only_limit_ = order_.task().max_norm() > 0 && steps_.size() == 1;
  std::vector<absl::Status> outcomes_;  // by place in the order
  std::optional<AnyReport> single_;     // of an order for one client
  std::mutex mu_;
  Tally total_;  // of several; guarded by mu_
  WorkTimes times_;
};

// The order's reports, or for each client why there is none.
absl::Status Gather(Worker& worker, const v1::Order& order, const OrderModels& models,
                    Gathering& gathering) {
  LEEWAY_RETURN_IF_ERROR(CheckSums(order.task()));
  return worker.Compute(order, models, [&](size_t place, absl::StatusOr<AnyReport> report) {
    gathering.Add(place, std::move(report));
  });
}

absl::StatusOr<std::unique_ptr<Gathering>> GatherAll(Worker& worker, const v1::Order& order,
                                                     const OrderModels& models, uint64_t seed,
                                                     bool summed) {
  for (const uint32_t client : order.clients()) {
    if (client >= worker.clients()) {
      return absl::InternalError(
          absl::StrCat("order names hosted client ", client, " of ", worker.clients()));
    }
  }
  const size_t dimension = DimensionOf(*models.model);
  auto gathering = std::make_unique<Gathering>(worker, order, dimension, seed, summed);
  const absl::Status gathered = Gather(worker, order, models, *gathering);
  if (gathered.ok()) {
    worker.Learn(order, gathering->seconds());
    return gathering;
  }
  // Other tasks of the run may be within reach, so the process stays in it.
  gathering = std::make_unique<Gathering>(worker, order, dimension, seed, summed);
  for (size_t place = 0; place < static_cast<size_t>(order.clients_size()); ++place) {
    gathering->Add(place, gathered);
  }
  return gathering;
}

}  // namespace

absl::StatusOr<Answer> AnswerOrder(Worker& worker, const v1::Order& order,
                                   const OrderModels& models, uint64_t seed) {
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Gathering> gathering,
                          GatherAll(worker, order, models, seed, /*summed=*/false));
  return std::move(*gathering).Finish();
}

absl::StatusOr<SummedAnswer> SumOrder(Worker& worker, const v1::Order& order,
                                      const OrderModels& models, uint64_t seed) {
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Gathering> gathering,
                          GatherAll(worker, order, models, seed, /*summed=*/true));
  return std::move(*gathering).Sum();
}

absl::Span<int64_t> Integers(Tally& total) {
  return {const_cast<int64_t*>(total.flat().data()), total.flat().size()};
}

Answer WriteSum(v1::ReportHeader header, Tally total) {
  Answer answer;
  answer.header = std::move(header);
  if (answer.header.clients().empty()) return answer;
  answer.payload = OwningSlice(TallyBytes{std::move(total)});
  DescribePayload(answer);
  return answer;
}

}  // namespace leeway
