// How an order is answered, by a worker that makes its reports up: nothing between
// worker and wire knows the models that Leeway contains.
#include "client/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/digest.h"
#include "common/encoding.h"
#include "common/rng.h"
#include "common/sums.h"
#include "common/wire.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kDimension = 6;
constexpr uint64_t kSeed = 11;

// Reports random numbers that depend on client and round alone.
template <typename T>
class MadeUpWorker : public Worker {
 public:
  explicit MadeUpWorker(size_t clients, bool threads = false)
      : clients_(clients), threads_(threads) {}

  // The client at this place of Hosted() fails from now on.
  void Fail(uint32_t client, absl::Status why) { failures_[client] = std::move(why); }

  v1::JoinRequest Hosted() const override {
    v1::JoinRequest request;
    for (uint32_t c = 0; c < clients_; ++c) {
      request.add_clients()->set_id(ClientId(c));
      request.mutable_clients(static_cast<int>(c))->set_examples(Weight(c));
    }
    return request;
  }
  size_t clients() const override { return clients_; }
  std::string ClientId(uint32_t client) const override { return "made-" + std::to_string(client); }
  absl::Status Prepare(const v1::Welcome&) override { return absl::OkStatus(); }
  absl::StatusOr<Parameters> Decode(absl::string_view) const override { return Parameters(); }

  absl::Status Compute(const v1::Order& order, const OrderModels& models, Take take) override {
    ++computed;
    const TaskSums sums(order.task(), static_cast<size_t>(SizeOf(*models.model)));
    const auto one = [&](size_t place) {
      const uint32_t client = order.clients(static_cast<int>(place));
      const auto failure = failures_.find(client);
      if (failure != failures_.end()) {
        take(place, failure->second);
      } else {
        take(place, AnyReport(Report(sums, order.round(), client).report()));
      }
    };
    const auto places = static_cast<size_t>(order.clients_size());
    if (!threads_) {
      for (size_t place = places; place-- > 0;) one(place);  // in an order of its own
      return outcome;
    }
    std::vector<std::thread> threads;
    for (size_t place = 0; place < places; ++place) threads.emplace_back(one, place);
    for (std::thread& thread : threads) thread.join();
    return outcome;
  }

  static uint64_t Weight(uint32_t client) { return 1 + 3 * client; }
  NamedReport<T> Report(const TaskSums& sums, uint64_t round, uint32_t client) const {
    Rng rng(5, round, client, Purpose::kTest);
    NamedReport<T> report(sums, Weight(client));
    for (T& x : report.report().vectors) x = static_cast<T>(rng.Normal());
    report.Set(kLoss, rng.Normal()).Derive();
    return report;
  }

  int computed = 0;
  absl::Status outcome;  // of Compute

 private:
  const size_t clients_;
  const bool threads_;
  std::map<uint32_t, absl::Status> failures_;
};

v1::Order Order(const std::vector<uint32_t>& clients, v1::WireEncoding encoding = v1::EXACT) {
  v1::Order order;
  order.set_run_id("run");
  order.set_round(4);
  order.set_attempt(2);
  order.mutable_model()->set_sha256("abc");
  v1::Task& task = *order.mutable_task();
  task.set_encoding(encoding);
  task.set_weighting(v1::EXAMPLES);
  task.set_groups(3);
  Ask(kLossSquared, task);
  Ask(kDisplacement, task);
  Ask(kLoss, task);
  Ask(kDrift, task);
  for (const char* name : {kDriftSquared, kWeightedDriftSquared, kDisplacementSquared}) {
    Ask(name, task);
  }
  if (encoding != v1::EXACT) {
    Ask(kEncodingError, task);
    Ask(kEncodingVariance, task);
  }
  SetRange(256, 1000, task);
  for (const uint32_t client : clients) {
    order.add_clients(client);
    order.add_groups((client + 1) % 3);
  }
  return order;
}

template <typename T>
Parameters Model() {
  return Vector<T>(Vector<T>::Zero(kDimension));
}

// What a server makes of answers, as it does it.
template <typename T>
class Reader {
 public:
  explicit Reader(const v1::Order& order)
      : order_(order), sums_(order.task(), kDimension), tally_(sums_.shape()) {}

  void Read(const Answer& answer) {
    const v1::ReportHeader& header = answer.header;
    EXPECT_EQ(header.run_id(), "run");
    EXPECT_EQ(header.round(), 4u);
    EXPECT_EQ(header.attempt(), 2u);
    EXPECT_EQ(header.base_sha256(), "abc");
    const absl::Status checked = CheckHeader(
        header, sums_, EncodingFor(order_.task().encoding(), std::is_same_v<T, double>));
    ASSERT_TRUE(checked.ok()) << checked;
    std::vector<GroupShare> shares(3);
    for (const std::string& id : header.clients()) {
      const auto client = static_cast<uint32_t>(std::stoul(id.substr(5)));
      GroupShare& share = shares[(client + 1) % 3];
      ++share.clients;
      share.weight += MadeUpWorker<T>::Weight(client);
    }
    const absl::Status folded = FoldReport(
        header, {reinterpret_cast<const std::byte*>(answer.payload.begin()), answer.payload.size()},
        shares, sums_, {}, tally_);
    EXPECT_TRUE(folded.ok()) << folded;
  }

  const TaskSums& sums() const { return sums_; }
  const Tally& tally() const { return tally_; }
  std::vector<int64_t> bits() const { return {tally_.flat().begin(), tally_.flat().end()}; }

 private:
  const v1::Order order_;
  const TaskSums sums_;
  Tally tally_;
};

template <typename T>
OrderModels Models() {
  return {.model = std::make_shared<const Parameters>(Model<T>()), .others = {}};
}

template <typename T>
Answer AnswerTo(MadeUpWorker<T>& worker, const v1::Order& order) {
  absl::StatusOr<Answer> answer = AnswerOrder(worker, order, Models<T>(), kSeed);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? *std::move(answer) : Answer();
}

template <typename T>
class AnswerTest : public ::testing::Test {};
using Precisions = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AnswerTest, Precisions);

TYPED_TEST(AnswerTest, OneByOneOrTogetherTheSumsHaveTheSameBits) {
  const std::vector<uint32_t> clients = {3, 0, 6, 1, 5};
  for (const v1::WireEncoding encoding : {v1::EXACT, v1::BFLOAT16_WIRE, v1::INT8_WIRE}) {
    MadeUpWorker<TypeParam> worker(7), parallel(7, true);
    Reader<TypeParam> apart(Order({}, encoding)), pairs(Order({}, encoding)),
        together(Order({}, encoding)), threads(Order({}, encoding));
    for (const uint32_t client : clients) {
      const Answer answer = AnswerTo(worker, Order({client}, encoding));
      EXPECT_NE(answer.header.encoding(), v1::TALLY);
      EXPECT_EQ(answer.header.weight(), worker.Weight(client));
      EXPECT_EQ(answer.header.group(), (client + 1) % 3);
      apart.Read(answer);
    }
    pairs.Read(AnswerTo(worker, Order({5, 6}, encoding)));
    pairs.Read(AnswerTo(worker, Order({1}, encoding)));
    pairs.Read(AnswerTo(worker, Order({0, 3}, encoding)));
    const Answer all = AnswerTo(worker, Order(clients, encoding));
    EXPECT_EQ(all.header.encoding(), v1::TALLY);
    EXPECT_THAT(all.header.numbers(), IsEmpty());
    EXPECT_THAT(all.header.clients(),
                ElementsAre("made-3", "made-0", "made-6", "made-1", "made-5"));
    together.Read(all);
    threads.Read(AnswerTo(parallel, Order(clients, encoding)));
    EXPECT_EQ(apart.tally().clients(), 5u);
    EXPECT_EQ(apart.bits(), together.bits()) << encoding;
    EXPECT_EQ(pairs.bits(), together.bits()) << encoding;
    EXPECT_EQ(threads.bits(), together.bits()) << encoding;
  }
}

// The sums are those of what the worker made up.
TYPED_TEST(AnswerTest, TheSumsAreThoseOfTheReports) {
  MadeUpWorker<TypeParam> worker(4);
  const v1::Order order = Order({0, 1, 2, 3});
  Reader<TypeParam> reader(order);
  reader.Read(AnswerTo(worker, order));
  double loss = 0, drift_squared = 0;
  Vector<double> displacement = Vector<double>::Zero(kDimension);
  for (uint32_t c = 0; c < 4; ++c) {
    const NamedReport<TypeParam> report = worker.Report(reader.sums(), 4, c);
    const auto weight = static_cast<double>(worker.Weight(c));
    loss += weight * report.number(kLoss);
    drift_squared += weight * report.number(kDriftSquared);
    displacement += weight * report.vector(kDisplacement).template cast<double>();
  }
  EXPECT_NEAR(NumberIn(reader.tally(), reader.sums(), kLoss), loss, 1e-13);
  EXPECT_NEAR(NumberIn(reader.tally(), reader.sums(), kDriftSquared), drift_squared, 1e-12);
  EXPECT_LT((VectorIn(reader.tally(), reader.sums(), kDisplacement) - displacement).norm(), 1e-12);
}

TYPED_TEST(AnswerTest, AClientThatFailsIsNamedAndLeftOut) {
  MadeUpWorker<TypeParam> worker(5);
  worker.Fail(2, absl::InvalidArgumentError("its data are gone"));
  const Answer answer = AnswerTo(worker, Order({0, 2, 4}));
  EXPECT_THAT(answer.header.clients(), ElementsAre("made-0", "made-4"));
  ASSERT_EQ(answer.header.failures_size(), 1);
  EXPECT_EQ(answer.header.failures(0).client(), "made-2");
  EXPECT_EQ(answer.header.failures(0).message(), "its data are gone");
  Reader<TypeParam> with(Order({})), without(Order({}));
  with.Read(answer);
  without.Read(AnswerTo(worker, Order({4, 0})));
  EXPECT_EQ(with.bits(), without.bits());

  const Answer alone = AnswerTo(worker, Order({2}));
  EXPECT_THAT(alone.header.clients(), IsEmpty());
  ASSERT_EQ(alone.header.failures_size(), 1);
  EXPECT_EQ(alone.header.failures(0).message(), "its data are gone");
  EXPECT_EQ(alone.payload.size(), 0u);
  const TaskSums sums(Order({}).task(), kDimension);
  EXPECT_TRUE(CheckHeader(alone.header, sums, v1::FLOAT64).ok());
}

// What a step or the tally refuses of one client is a failure of that client.
TYPED_TEST(AnswerTest, AReportThatCannotBeSentIsItsClientsFailure) {
  MadeUpWorker<TypeParam> worker(3);
  v1::Order order = Order({0, 1, 2});
  const TaskSums sums(order.task(), kDimension);
  std::vector<double> norms;
  for (uint32_t c = 0; c < 3; ++c) {
    norms.push_back(std::sqrt(worker.Report(sums, 4, c).number(kDisplacementSquared)));
  }
  const auto longest =
      static_cast<uint32_t>(std::max_element(norms.begin(), norms.end()) - norms.begin());
  order.mutable_task()->set_max_norm(norms[longest] * 0.999);
  const Answer answer = AnswerTo(worker, order);
  EXPECT_EQ(answer.header.clients_size(), 2);
  ASSERT_EQ(answer.header.failures_size(), 1);
  EXPECT_EQ(answer.header.failures(0).client(), worker.ClientId(longest));
  EXPECT_THAT(answer.header.failures(0).message(), HasSubstr("max_norm"));

  order = Order({0, 1, 2});
  order.mutable_task()->mutable_sums(1)->set_largest(1e-3);  // all are above
  const Answer none = AnswerTo(worker, order);
  EXPECT_EQ(none.header.failures_size(), 3);
  EXPECT_THAT(none.header.failures(0).message(), HasSubstr("displacement, coordinate"));
}

TYPED_TEST(AnswerTest, AnOrderForAClientThatIsNotHostedIsAnError) {
  MadeUpWorker<TypeParam> worker(3);
  const absl::StatusOr<Answer> answer =
      AnswerOrder(worker, Order({1, 3}), Models<TypeParam>(), kSeed);
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("client 3 of 3"));
  EXPECT_EQ(worker.computed, 0);
}

// Such as a state that could not be kept: nothing of the answer may count.
TYPED_TEST(AnswerTest, AnErrorOfTheWorkerTakesAllReportsBack) {
  MadeUpWorker<TypeParam> worker(3);
  worker.outcome = absl::ResourceExhaustedError("the disk is full");
  const Answer answer = AnswerTo(worker, Order({0, 2}));
  EXPECT_TRUE(answer.header.clients().empty());
  ASSERT_EQ(answer.header.failures_size(), 2);
  EXPECT_EQ(answer.header.failures(1).client(), "made-2");
  EXPECT_EQ(answer.header.failures(1).message(), "the disk is full");
  EXPECT_EQ(answer.payload.size(), 0u);
}

// docs/wire-format.md: a client that does not know a sum's name reports a failure that
// says so. It stays in the run: another phase may ask for less.
TYPED_TEST(AnswerTest, AnUnknownSumIsRefusedByItsName) {
  MadeUpWorker<TypeParam> worker(3);
  for (const std::vector<uint32_t>& clients : {std::vector<uint32_t>{1}, {0, 2}}) {
    v1::Order order = Order(clients);
    v1::Sum& sum = *order.mutable_task()->add_sums();
    sum.set_name("kurtosis");
    sum.set_shape(v1::NUMBER);
    const Answer answer = AnswerTo(worker, order);
    EXPECT_THAT(answer.header.clients(), IsEmpty());
    ASSERT_EQ(answer.header.failures_size(), static_cast<int>(clients.size()));
    for (size_t i = 0; i < clients.size(); ++i) {
      const v1::ClientFailure& failure = answer.header.failures(static_cast<int>(i));
      EXPECT_EQ(failure.client(), worker.ClientId(clients[i]));
      EXPECT_THAT(failure.message(), AllOf(HasSubstr("'kurtosis'"), HasSubstr("install")));
    }
    EXPECT_EQ(answer.payload.size(), 0u);
  }
  EXPECT_EQ(worker.computed, 0);
}

}  // namespace
}  // namespace leeway
