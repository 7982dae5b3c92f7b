#include "server/test_measures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/sums.h"
#include "server/measures.h"

namespace leeway {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Counts up to here are exact, and fit into the record.
constexpr double kMostExamples = 0x1p53;

// With more classes the counts would outweigh the answers.
constexpr uint32_t kMostClasses = 1000;

// Scores are logits. Thresholds are dense around 0, where most scores are, and reach far out.
constexpr int kScoreThresholds = 64;  // on either side of 0
double ScoreThreshold(int i) { return std::sinh(4.5 * i / kScoreThresholds); }

// Results of one group, pooled over its test examples.
class TestSums {
 public:
  TestSums(const v1::Task& task, const Tally& tally, uint32_t group)
      : sums_(Asks(task, kTestExamples) ? TaskSums(task, tally.shape().dimension) : TaskSums()),
        tally_(tally),
        group_(group) {
    if (group >= tally.shape().groups || sums_.number(kTestExamples) == TaskSums::kNone) return;
    examples = std::clamp(Number(kTestExamples), 0.0, kMostExamples);
    clients = std::max(0.0, Number(kAccuracyAbove));
    if (examples < 1) return;
    loss = Number(kTestLoss) / examples;
    accuracy = Number(kTestCorrect) / examples;
    FillLabels();
  }

  double examples = 0;
  double clients = 0;
  double loss = kNaN;
  double accuracy = kNaN;
  double majority = kNaN;
  double auc = kNaN;

 private:
  double Number(const char* name, size_t offset = 0) const {
    const int place = sums_.number(name);
    if (place == TaskSums::kNone) return 0;
    return tally_.number(group_, static_cast<size_t>(place) + offset);
  }

  // How many sums of this name there are: they stand side by side.
  size_t Count(const char* name) const {
    const auto& numbers = sums_.shape().numbers;
    return static_cast<size_t>(std::count_if(numbers.begin(), numbers.end(),
                                             [&](const auto& one) { return one.name == name; }));
  }

  void FillLabels() {
    const size_t classes = Count(kTestLabelAbove);
    // Less than all: some clients, whose own programs compute, do not tell their labels.
    if (classes == 0 || Number(kTestLabelAbove) != examples) return;
    double most = 0;
    for (size_t label = 0; label < classes; ++label) {
      const double above = label + 1 < classes ? Number(kTestLabelAbove, label + 1) : 0;
      most = std::max(most, Number(kTestLabelAbove, label) - above);
    }
    majority = most / examples;
    if (Count(kPositiveScoreAbove) == 0) return;
    const double positives = Number(kTestLabelAbove, 1);
    auc = AreaUnderCurve(positives, Above(kPositiveScoreAbove), examples - positives,
                         Above(kNegativeScoreAbove));
  }

  std::vector<double> Above(const char* name) const {
    std::vector<double> above(Count(name));
    for (size_t i = 0; i < above.size(); ++i) above[i] = Number(name, i);
    return above;
  }

  const TaskSums sums_;
  const Tally& tally_;
  const uint32_t group_;
};

}  // namespace

uint32_t ClassesOf(const v1::Model& model) {
  switch (model.kind_case()) {
    case v1::Model::kSoftmaxRegression:
      return model.softmax_regression().classes();
    case v1::Model::kMlp:
      return model.mlp().classes();
    case v1::Model::kCnn:
      return model.cnn().classes();
    case v1::Model::kLstm:
      return model.lstm().vocabulary();
    default:
      return 0;
  }
}

void AskForTests(const v1::Model& model, v1::Task& task) {
  for (const char* name : {kTestExamples, kTestLoss, kTestCorrect}) Ask(name, task);
  const uint32_t classes = ClassesOf(model) <= kMostClasses ? ClassesOf(model) : 0;
  for (uint32_t label = 0; label < classes; ++label) {
    AskAbove(kTestLabelAbove, static_cast<double>(label) - 1, task);
  }
  if (classes == 2 && !model.has_lstm()) {
    for (const char* name : {kPositiveScoreAbove, kNegativeScoreAbove}) {
      for (int i = -kScoreThresholds; i <= kScoreThresholds; ++i) {
        AskAbove(name, ScoreThreshold(i), task);
      }
    }
  }
  // Last: a search for percentiles adds its thresholds, and counts of one name stand side by side.
  AskAbove(kAccuracyAbove, kWithTestPart, task);
}

void FillTests(const v1::Task& task, const Tally& tally, v1::RoundRecord& record) {
  const TestSums clients(task, tally, kClientGroup);
  record.set_test_examples(static_cast<uint64_t>(clients.examples));
  record.set_test_clients(static_cast<uint32_t>(std::lround(clients.clients)));
  record.set_test_loss(clients.loss);
  record.set_accuracy(clients.accuracy);
  record.set_majority_accuracy(clients.majority);
  record.set_auc(clients.auc);
  const TestSums central(task, tally, kEvaluatorGroup);
  record.set_central_examples(static_cast<uint64_t>(central.examples));
  record.set_central_loss(central.loss);
  record.set_central_accuracy(central.accuracy);
  record.set_central_majority_accuracy(central.majority);
  record.set_central_auc(central.auc);
}

double AreaUnderCurve(double positives, absl::Span<const double> positives_above, double negatives,
                      absl::Span<const double> negatives_above) {
  if (!(positives > 0) || !(negatives > 0)) return kNaN;
  double pairs = 0;  // in which the positive example has the higher score
  double positive = positives;
  double negative = negatives;
  for (size_t i = 0; i <= positives_above.size(); ++i) {
    const bool last = i == positives_above.size();
    const double next_positive = last ? 0 : positives_above[i];
    const double next_negative = last ? 0 : negatives_above[i];
    // Negatives between the thresholds, and the positives there (half) and above.
    pairs += (negative - next_negative) * (next_positive + (positive - next_positive) / 2);
    positive = next_positive;
    negative = next_negative;
  }
  return pairs / (positives * negatives);
}

}  // namespace leeway
