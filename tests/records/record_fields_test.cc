#include "records/record_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/str_split.h"
#include "records/json_text.h"
#include "tests/records/run_fixture.h"

namespace leeway {
namespace {

using google::protobuf::FieldDescriptor;
using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::RoundRecord TrainingRound() {
  RunSummary run;
  run.clients = 5;
  AddTraining(run, 2, 10, 3);
  return run.records.back();
}

const Measure* Find(const std::string& name) {
  const auto found = std::find_if(Measures().begin(), Measures().end(),
                                  [&](const Measure& one) { return one.name == name; });
  return found == Measures().end() ? nullptr : &*found;
}

// Neither list is written down anywhere but in record.proto: whatever is added there
// must be here.
TEST(RecordFieldsTest, EveryFieldIsInTheRow) {
  const ordered_json row = RoundJson(TrainingRound());
  for (const auto* type : {v1::RoundRecord::descriptor(), v1::DriftAtSteps::descriptor()}) {
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor& field = *type->field(i);
      if (field.is_repeated() || field.message_type() != nullptr || field.name() == "h") continue;
      EXPECT_TRUE(row.contains(field.name())) << field.full_name();
    }
  }
}

TEST(RecordFieldsTest, NoNameIsInBothMessages) {
  for (int i = 0; i < v1::DriftAtSteps::descriptor()->field_count(); ++i) {
    const std::string& name = v1::DriftAtSteps::descriptor()->field(i)->name();
    EXPECT_EQ(v1::RoundRecord::descriptor()->FindFieldByName(name), nullptr) << name;
  }
}

TEST(RecordFieldsTest, ARowHasTheValuesOfItsRecord) {
  v1::RoundRecord round = TrainingRound();
  round.set_distance_squared(std::nan(""));
  round.set_opened(1.7e9 + 1.0 / 3);
  const ordered_json row = RoundJson(round);
  EXPECT_EQ(row["round"], 3);
  EXPECT_EQ(row["round_in_run"], round.round());
  EXPECT_EQ(row["kind"], "train_round");
  EXPECT_TRUE(row["point"].is_null());
  EXPECT_EQ(row["local_steps"], 10);
  EXPECT_EQ(row["loss"].get<double>(), round.loss());
  EXPECT_EQ(row["drift_bound"].get<double>(), round.drift(0).drift_bound());
  const ordered_json back = ordered_json::parse(JsonLine(row));
  EXPECT_TRUE(back["distance_squared"].is_null());
  EXPECT_EQ(back["opened"].get<double>(), round.opened());
}

TEST(RecordFieldsTest, DriftThatWasNotMeasuredIsNull) {
  v1::RoundRecord round = TrainingRound();
  const size_t size = RoundJson(round).size();
  round.clear_drift();
  const ordered_json row = RoundJson(round);
  EXPECT_EQ(row.size(), size);
  EXPECT_TRUE(row["average_drift_squared"].is_null());
  EXPECT_TRUE(row["encoding_variance"].is_null());
}

TEST(RecordFieldsTest, LargeWholeNumbersAreExact) {
  v1::RoundRecord round = TrainingRound();
  round.set_test_examples(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(RoundJson(round)["test_examples"], std::numeric_limits<uint64_t>::max());
}

TEST(RecordFieldsTest, TheTableHasTheColumnsOfTheRow) {
  RunSummary run;
  run.clients = 5;
  AddTraining(run, 2, 10, 2);
  run.records[1].clear_drift();
  run.records[1].set_base_sha256("a,\"b\"");
  const std::vector<std::string> lines = absl::StrSplit(RoundsCsv(run.records), '\n');
  ASSERT_EQ(lines.size(), 4u);  // the last is empty
  const std::vector<std::string> names = absl::StrSplit(lines[0], ',');
  const std::vector<std::string> cells = absl::StrSplit(lines[1], ',');
  const ordered_json row = RoundJson(run.records[0]);
  ASSERT_EQ(names.size(), row.size());
  ASSERT_EQ(cells.size(), row.size());
  for (size_t i = 0; i < names.size(); ++i) {
    ASSERT_TRUE(row.contains(names[i]));
    const ordered_json& value = row[names[i]];
    if (!value.is_number_float()) continue;
    if (std::isfinite(value.get<double>())) {
      EXPECT_EQ(std::stod(cells[i]), value.get<double>()) << names[i];
    } else {
      EXPECT_EQ(cells[i], "") << names[i];
    }
  }
  EXPECT_THAT(lines[2], HasSubstr("\"a,\"\"b\"\"\""));
  EXPECT_EQ(RoundsCsv({}), "");
}

TEST(RecordFieldsTest, MetricsAreColumnsUnderTheirNames) {
  RunSummary run;
  run.clients = 5;
  AddTraining(run, 2, 10, 2);
  v1::MetricMean& metric = *run.records[1].add_metrics();
  metric.set_name("auc");
  metric.set_value(0.75);
  EXPECT_FALSE(RoundJson(run.records[0]).contains("metric/auc"));
  const ordered_json row = RoundJson(run.records[1]);
  EXPECT_EQ(row["metric/auc"], 0.75);
  EXPECT_FALSE(row.contains("metrics"));
  const std::vector<std::string> lines = absl::StrSplit(RoundsCsv(run.records), '\n');
  const std::vector<std::string> names = absl::StrSplit(lines[0], ',');
  EXPECT_EQ(names.back(), "metric/auc");
  for (const int i : {1, 2}) {
    const std::vector<std::string> cells = absl::StrSplit(lines[static_cast<size_t>(i)], ',');
    ASSERT_EQ(cells.size(), names.size());
    EXPECT_EQ(cells.back(), i == 1 ? "" : "0.75");
  }
  const std::vector<Measure> metrics = MetricsOf(run.records);
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].name, "metric/auc");
  EXPECT_FALSE(metrics[0].OfDrift());
  EXPECT_TRUE(std::isnan(ValueOf(metrics[0], run.records[0])));
  EXPECT_EQ(ValueOf(metrics[0], run.records[1]), 0.75);
}

TEST(MeasuresTest, AreTheDoublesThatAreNoSettings) {
  std::set<std::string> names;
  for (const Measure& measure : Measures()) {
    EXPECT_EQ(measure.field->cpp_type(), FieldDescriptor::CPPTYPE_DOUBLE);
    EXPECT_TRUE(names.insert(measure.name).second) << measure.name;
  }
  for (const char* name : {"loss", "gradient_norm", "distance_squared", "accuracy",
                           "average_drift_squared", "encoding_variance"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
  for (const char* name : {"step_size", "server_rate", "opened", "h", "round", "seconds",
                           "interval_low", "interval_high"}) {
    EXPECT_EQ(names.count(name), 0u) << name;
  }
}

TEST(MeasuresTest, SayWhatTheirCommentsSay) {
  const Measure* error = Find("loss_standard_error");
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->title, "Loss standard error");
  EXPECT_EQ(error->about, "Standard error of that loss over clients.");
  EXPECT_FALSE(error->OfDrift());
  const Measure* bound = Find("drift_bound");
  ASSERT_NE(bound, nullptr);
  EXPECT_EQ(bound->title, "Jensen bound");
  EXPECT_EQ(TitleOf("unbiased_drift_squared"), "ρ²");
  EXPECT_EQ(bound->about, "sum p_c |B_c|^2: its Jensen bound.");
  EXPECT_TRUE(bound->OfDrift());
  for (const Measure& measure : Measures()) EXPECT_NE(measure.about, "") << measure.name;
}

TEST(MeasuresTest, HaveTheValuesOfTheRecord) {
  v1::RoundRecord round = TrainingRound();
  EXPECT_EQ(ValueOf(*Find("loss"), round), round.loss());
  EXPECT_EQ(ValueOf(*Find("drift_bound"), round), round.drift(0).drift_bound());
  EXPECT_EQ(ValueOf(*Find("drift_bound"), round.drift(0)), round.drift(0).drift_bound());
  round.clear_drift();
  EXPECT_TRUE(std::isnan(ValueOf(*Find("drift_bound"), round)));
}

TEST(FieldsJsonTest, LeavesOutWhatIsAbsent) {
  v1::RoundRecord round;
  EXPECT_FALSE(FieldsJson(round).contains("constants"));
  EXPECT_FALSE(FieldsJson(round).contains("percentiles"));
  round.mutable_constants()->set_exact(true);
  round.add_percentiles()->set_percent(10);
  round.set_point(v1::Probe::OPTIMUM);
  const ordered_json json = FieldsJson(round);
  EXPECT_EQ(json["constants"]["exact"], true);
  EXPECT_EQ(json["percentiles"][0]["percent"], 10.0);
  EXPECT_EQ(json["point"], "optimum");
}

}  // namespace
}  // namespace leeway
