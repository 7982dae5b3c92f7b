#include "cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/drift.h"
#include "cli/run.h"
#include "records/store.h"
#include "tests/records/run_fixture.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kEvil[] = "<script>alert('x')</script>";

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

RunSummary FullRun() {
  RunSummary run = OptimumRun();
  run.config.set_name("made up");
  for (int i = 0; i < 2; ++i) run.config.add_phases()->mutable_train();
  AddConstants(run);
  AddProbe(run, {1, 2, 10, 100});
  for (const uint32_t h : {1u, 2u, 10u, 100u}) AddFixedPoint(run, h, 0.001 * h);
  AddTraining(run, 4, 10, 50);
  return run;
}

// After 10, 20 and 30 rounds of the training phase.
void AddEvaluations(RunSummary& run) {
  for (uint32_t i = 1; i <= 3; ++i) {
    v1::RoundRecord& evaluation = AddRecord(run, v1::EVALUATE_ROUND, 4);
    evaluation.set_round_in_phase(10 * i);
    evaluation.set_loss(std::nan(""));  // an evaluation does not touch the training data
    evaluation.set_loss_standard_error(std::nan(""));
    evaluation.set_accuracy(0.2 * i);
    evaluation.set_majority_accuracy(0.25);
    evaluation.set_auc(0.3 * i);
    evaluation.set_test_loss(1.0 / i);
    evaluation.set_test_examples(70);
    evaluation.set_base_sha256(std::to_string(i));  // of three models
  }
}

const Chart& ChartOf(const Report& report, const std::string& id) {
  for (const Chart& chart : report.charts) {
    if (chart.id == id) return chart;
  }
  ADD_FAILURE() << "there is no chart " << id;
  return report.charts.front();
}

std::vector<std::string> Ids(const Report& report) {
  std::vector<std::string> ids;
  for (const Chart& chart : report.charts) ids.push_back(chart.id);
  return ids;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ReportTest, HasEveryChartWithData) {
  const Report report = MakeReport(FullRun());
  EXPECT_THAT(Ids(report),
              ElementsAre("gap_over_steps", "distance_over_steps", "drift_over_steps",
                          "loss_over_rounds", "distance_over_rounds", "drift_over_rounds"));
  const std::string page = ReportPage(report, "");
  for (const Chart& chart : report.charts) {
    EXPECT_TRUE(chart.HasData()) << chart.id;
    EXPECT_THAT(page, HasSubstr("<figure class=\"card\" id=\"" + chart.id + "\""));
    EXPECT_GE(Count(ChartSvg(chart, SvgUse::kPage), "class=\"line\""), chart.series.size());
  }
  // Each for a desk and for a phone.
  EXPECT_EQ(Count(page, "<svg "), 2 * (report.charts.size() + report.measures.size()));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(ReportTest, DrawsLocalStepsThatAreChosenByRound) {
  RunSummary run = FullRun();
  EXPECT_THAT(Ids(MakeReport(run)), Not(::testing::Contains("steps_over_rounds")));
  run.config.mutable_phases(4)->mutable_train()->mutable_local()->mutable_auto_steps();
  run.records.back().set_local_steps(5);  // the last training round's; it was 10 before
  const Report report = MakeReport(run);
  const Chart& chart = ChartOf(report, "steps_over_rounds");
  ASSERT_EQ(chart.series.size(), 1u);
  EXPECT_EQ(chart.series[0].name, "H chosen by round");
  EXPECT_EQ(chart.series[0].points.front().y, 10);
  EXPECT_EQ(chart.series[0].points.back().y, 5);
}

// Measures without a chart of their own, of each list of rounds that has values.
TEST(ReportTest, HasAChartForEveryOtherMeasureWithValues) {
  RunSummary run = FullRun();
  for (v1::RoundRecord& record : run.records) {
    if (record.kind() != v1::PROBE_ROUND) continue;
    for (v1::DriftAtSteps& drift : *record.mutable_drift()) drift.set_encoding_variance(1e-9);
  }
  AddEvaluations(run);
  const Report report = MakeReport(run);
  std::vector<std::string> ids;
  for (const Chart& chart : report.measures) ids.push_back(chart.id);
  EXPECT_THAT(ids, ElementsAre("loss_standard_error_over_rounds", "auc_over_evaluations",
                               "encoding_variance_over_steps"));
  const Chart& auc = report.measures[1];
  EXPECT_EQ(auc.title, "AUC over evaluations");
  EXPECT_THAT(auc.description, HasSubstr("Area under the ROC curve"));
  ASSERT_EQ(auc.series.size(), 1u);
  EXPECT_EQ(auc.series[0].points.size(), 3u);
  EXPECT_EQ(auc.series[0].points[2].y, 0.3 * 3);
  const std::string page = ReportPage(report, "");
  EXPECT_THAT(page, AllOf(HasSubstr("Other measures"), HasSubstr("id=\"auc_over_evaluations")));
  // The ends of an interval belong to its figure, and how long a round took is no measure.
  EXPECT_THAT(page, Not(HasSubstr("interval_low")));
  EXPECT_THAT(page, Not(HasSubstr("seconds_over")));
}

TEST(ReportTest, AccuracyAndTestLossStandOverTheRoundsOfTraining) {
  RunSummary run = FullRun();
  AddEvaluations(run);
  const Report report = MakeReport(run);
  const Chart& accuracy = ChartOf(report, "accuracy_over_rounds");
  EXPECT_EQ(accuracy.title, "Accuracy over training rounds");
  ASSERT_EQ(accuracy.series.size(), 1u);
  EXPECT_EQ(accuracy.series[0].points.size(), 3u);
  EXPECT_EQ(accuracy.series[0].points[1].x, 20);
  EXPECT_EQ(accuracy.series[0].points[1].y, 100 * 0.4);
  ASSERT_EQ(accuracy.guides.size(), 1u);
  EXPECT_EQ(accuracy.guides[0].label, "most frequent class: 25 %");
  const Chart& loss = ChartOf(report, "loss_over_rounds");
  ASSERT_EQ(loss.series.size(), 2u);
  EXPECT_EQ(loss.series[1].name, "test loss");
  EXPECT_EQ(loss.series[1].points[2].x, 30);
}

TEST(ReportTest, TheLossOfTheFinalModelEndsItsCurve) {
  RunSummary run = FullRun();
  const v1::RoundRecord last = run.records.back();
  ASSERT_EQ(last.kind(), v1::TRAIN_ROUND);
  run.config.mutable_phases(static_cast<int>(last.phase()))
      ->mutable_train()
      ->set_rounds(static_cast<uint32_t>(last.round_in_phase()));
  v1::RoundRecord& end = AddRecord(run, v1::FINAL_LOSS_ROUND, last.phase());
  end.set_round_in_phase(last.round_in_phase());
  end.set_base_sha256(last.model_sha256());
  end.set_loss(0.03125);
  const Report report = MakeReport(run);
  const ChartPoint& point = ChartOf(report, "loss_over_rounds").series[0].points.back();
  EXPECT_EQ(point.x, static_cast<double>(last.round_in_phase()));
  EXPECT_EQ(point.y, 0.03125);
  EXPECT_THAT(ReportPage(report, ""), HasSubstr("0.03125 after 50 rounds"));
}

TEST(ReportTest, NoTwoChartsShareATitle) {
  RunSummary run = FullRun();
  v1::RoundRecord again;
  for (const v1::RoundRecord& record : run.records) {
    if (record.kind() == v1::PROBE_ROUND) again = record;
  }
  again.set_round(run.records.back().round() + 1);
  run.records.push_back(again);
  AddEvaluations(run);
  const Report report = MakeReport(run);
  std::set<std::string> titles;
  for (const std::vector<Chart>* charts : {&report.charts, &report.measures}) {
    for (const Chart& chart : *charts) {
      EXPECT_TRUE(titles.insert(chart.title).second) << chart.title;
    }
  }
}

TEST(ReportTest, StandsAloneAndStartsWithTheVerdict) {
  const Report report = MakeReport(FullRun());
  const std::string page = ReportPage(report, "");
  EXPECT_THAT(page, HasSubstr("Heterogeneity does not hurt here up to H = 100"));
  EXPECT_LT(page.find("does not hurt"), page.find("<table>"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
  // The only address is the name of SVG's namespace.
  EXPECT_EQ(Count(page, "http"), Count(page, "xmlns=\"http://www.w3.org/2000/svg\""));
}

TEST(ReportTest, ATheoryWhoseConditionsHoldIsDrawnSolid) {
  const auto bound_of = [](const Report& report) {
    for (const Chart& chart : report.charts) {
      if (chart.id == "distance_over_rounds")
        return std::make_pair(chart.series.at(1), chart.notes);
    }
    return std::make_pair(ChartSeries{.name = "none"}, std::vector<std::string>());
  };
  RunSummary run = FullRun();
  auto [series, notes] = bound_of(MakeReport(run));
  EXPECT_EQ(series.name, "Theorem 2");
  EXPECT_EQ(series.line, ChartLine::kThin);
  EXPECT_EQ(series.points.size(), 50u);
  for (v1::RoundRecord& record : run.records) record.set_server_rate(1);
  std::tie(series, notes) = bound_of(MakeReport(run));
  EXPECT_EQ(series.line, ChartLine::kDashed);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("conditions do not hold: the server rate α = 1")));
}

TEST(ReportTest, SaysWhenAStepSizeBreaksTheTheory) {
  // With all that the bound is made of, and with neither probe nor fixed point.
  RunSummary bare = OptimumRun();
  AddConstants(bare);
  AddTraining(bare, 4, 10, 5);
  for (RunSummary run : {FullRun(), bare}) {
    EXPECT_THAT(ReportPage(MakeReport(run), ""), Not(HasSubstr("conditions do not hold")));
    for (v1::RoundRecord& record : run.records) record.set_step_size(0.06);
    EXPECT_THAT(ReportPage(MakeReport(run), ""),
                HasSubstr("H = 10: the theory&#39;s conditions do not hold: the step size 0.06 is "
                          "above 1/L = 0.05"));
  }
}

TEST(ReportTest, PhasesOfTheSameStepsAreToldApart) {
  RunSummary run = FullRun();
  AddTraining(run, 5, 10, 5);
  AddTraining(run, 6, 20, 5);
  AddTraining(run, 7, 10, 5);
  for (v1::RoundRecord& record : run.records) record.set_batch_size(record.phase() == 7 ? 4 : 0);
  std::vector<std::string> names;
  for (const TrainingCurve& curve : TrainingCurves(run)) names.push_back(curve.name);
  EXPECT_THAT(names, ElementsAre("H = 10, η = 0.01, phase 5", "H = 10, η = 0.01, phase 6", "H = 20",
                                 "H = 10, batches of 4"));
}

TEST(ReportTest, RoundingIsNotStretchedOverTheAxis) {
  const Report report = MakeReport(FullRun());
  const Chart& chart = report.charts[2];
  EXPECT_EQ(chart.series[0].points[0].y, 0);  // H = 1: 1e-32 was measured
  EXPECT_THAT(ChartNotes(chart),
              testing::Contains(HasSubstr(
                  "Values at or below zero, which a log axis cannot show: 1 of ρ², 1 of Jensen")));
}

TEST(ReportTest, NamesFromOthersAreEscaped) {
  RunSummary run = FullRun();
  run.config.set_name(kEvil);
  run.directory = kEvil;
  run.message = kEvil;
  run.run_id = kEvil;
  run.state = v1::FAILED;
  run.names = {{kEvil, kEvil}};
  v1::Event& event = run.events.emplace_back();
  event.set_kind(v1::Event::REFUSED);
  event.set_subject(kEvil);
  event.set_text("bad \xff report");
  const std::string page = ReportPage(MakeReport(run), kEvil);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
  EXPECT_THAT(page, HasSubstr("bad \xef\xbf\xbd report"));
}

TEST(ReportTest, UnfinishedAndFailedRunsSaySoOnTop) {
  RunSummary run = FullRun();
  run.state = v1::RUNNING;
  EXPECT_THAT(ReportPage(MakeReport(run), ""), HasSubstr("not finished (running, "));
  run.state = v1::FAILED;
  run.message = "training diverged";
  EXPECT_THAT(ReportPage(MakeReport(run), ""), HasSubstr("This run failed: training diverged"));
  RunSummary waiting;
  waiting.directory = "runs/new";
  EXPECT_THAT(ReportPage(MakeReport(waiting), ""), HasSubstr("waits for its clients"));
}

TEST(ReportTest, WithoutAVerdictThereIsTheRemedy) {
  RunSummary run = OptimumRun();
  run.config.clear_phases();
  AddTraining(run, 0, 10, 5);
  const std::string page = ReportPage(MakeReport(run), "");
  EXPECT_THAT(page,
              AllOf(HasSubstr("no verdict"), HasSubstr("fixed_point { steps: [1, 10, 100] }")));
  EXPECT_THAT(page, HasSubstr("id=\"loss_over_rounds\""));
}

// From a real store to real files.
class WriteReportTest : public testing::Test {
 protected:
  WriteReportTest() {
    std::string pattern = testing::TempDir() + "/report_test.XXXXXX";
    directory_ = mkdtemp(pattern.data());
    const RunSummary run = FullRun();
    auto store = Store::Open(directory_);
    EXPECT_TRUE(store.ok()) << store.status();
    std::vector<StoredClient> roster(100);
    for (size_t i = 0; i < roster.size(); ++i) {
      roster[i] = {"client " + std::to_string(i), 1, 0};
    }
    EXPECT_TRUE((*store)->Begin("run-1", run.config, v1::DataSchema(), roster, {}, {}).ok());
    for (const v1::RoundRecord& record : run.records) {
      RoundCommit commit;
      commit.record = record;
      EXPECT_TRUE((*store)->Commit(commit).ok());
    }
    EXPECT_TRUE((*store)->Finish(v1::DONE, "", {}).ok());
  }
  ~WriteReportTest() override { fs::remove_all(directory_); }

  fs::path directory_;
};

TEST_F(WriteReportTest, WritesThePageAndEverySeries) {
  const absl::StatusOr<std::string> page = WriteReport({.directory = directory_, .out = ""});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(*page, directory_ / "report" / "report.html");
  EXPECT_THAT(ReadFile(*page), HasSubstr("href=\"gap_over_steps.svg\""));
  for (const char* id : {"gap_over_steps", "distance_over_steps", "drift_over_steps",
                         "loss_over_rounds", "distance_over_rounds", "drift_over_rounds"}) {
    EXPECT_THAT(ReadFile(directory_ / "report" / (std::string(id) + ".svg")), HasSubstr("</svg>"));
    EXPECT_THAT(ReadFile(directory_ / "report" / (std::string(id) + ".csv")),
                HasSubstr("series,x,y,low,high\n"));
  }
  EXPECT_THAT(ReadFile(directory_ / "report" / "verdict.csv"), HasSubstr("harmless"));
  EXPECT_THAT(ReadFile(directory_ / "report" / "rounds.csv"), HasSubstr("loss_standard_error"));
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_ / "report")) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

TEST_F(WriteReportTest, TheFilesFollowThePage) {
  const fs::path out = directory_ / "else" / "where.html";
  ASSERT_TRUE(WriteReport({.directory = directory_, .out = out}).ok());
  EXPECT_THAT(ReadFile(out), HasSubstr("href=\"where_files/gap_over_steps.svg\""));
  EXPECT_TRUE(fs::exists(directory_ / "else" / "where_files" / "gap_over_steps.csv"));
  EXPECT_FALSE(fs::exists(directory_ / "report"));
}

TEST_F(WriteReportTest, TheStoredRunHasAVerdict) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(DriftCommand({.directory = directory_, .data = "", .json = true}), kExitOk);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("\"verdict\": \"harmless\""));
}

TEST(WriteReportErrorTest, NamesTheRemedy) {
  const absl::Status missing = WriteReport({.directory = "/no/such/run", .out = ""}).status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("leeway run CONFIG"));
  const absl::Status folder = WriteReport({.directory = "/no/such/run", .out = "/tmp"}).status();
  EXPECT_THAT(std::string(folder.message()), HasSubstr("such as report.html"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReportCommand({.directory = "/no/such/run", .out = ""}), kExitUsage);
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace leeway
