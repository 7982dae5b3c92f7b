#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProgressViewTest : public testing::Test {
 protected:
  ProgressViewTest() : out_(open_memstream(&buffer_, &size_)) {
    config_.add_phases()->mutable_optimum()->set_tolerance(1e-10);
    config_.add_phases()->mutable_train()->set_rounds(100);
  }
  ~ProgressViewTest() override {
    std::fclose(out_);
    std::free(buffer_);
  }

  std::string Shown() {
    std::fflush(out_);
    return std::string(buffer_, size_);
  }

  static v1::Observation Round(uint32_t phase, uint64_t round, uint64_t round_in_phase) {
    v1::Observation observation;
    v1::Progress* progress = observation.mutable_progress();
    progress->set_state(v1::RUNNING);
    progress->set_phase(phase);
    progress->set_round_in_phase(round_in_phase);
    progress->set_rounds_in_phase(phase == 1 ? 100 : 0);
    progress->set_reports(3);
    progress->set_sampled(8);
    v1::RoundRecord* record = observation.add_rounds();
    record->set_kind(phase == 1 ? v1::TRAIN_ROUND : v1::OPTIMUM_ROUND);
    record->set_phase(phase);
    record->set_round(round);
    record->set_round_in_phase(round_in_phase);
    record->set_loss(0.5);
    record->set_gradient_norm(2.1e-13);
    return observation;
  }

  static absl::Time At(double seconds) {
    return absl::FromUnixSeconds(1000) + absl::Seconds(seconds);
  }

  char* buffer_ = nullptr;
  size_t size_ = 0;
  std::FILE* out_;
  v1::RunConfig config_;
};

TEST_F(ProgressViewTest, PlainLinesAreFewButPhasesAlwaysEndWithOne) {
  ProgressView view(config_, out_, {});
  for (uint64_t i = 1; i <= 43; ++i) view.Update(Round(0, i, i), At(0.01 * double(i)));
  for (uint64_t i = 1; i <= 100; ++i) view.Update(Round(1, 43 + i, i), At(1 + 0.1 * double(i)));
  v1::Observation done;
  done.mutable_progress()->set_state(v1::DONE);
  view.Update(done, At(12));
  const std::string shown = Shown();
  EXPECT_THAT(shown, HasSubstr("optimum found in 43 rounds, |grad F| = 2.1e-13\n"));
  EXPECT_THAT(shown, HasSubstr("trained 100 rounds"));
  EXPECT_THAT(shown, HasSubstr("reports 3/8"));
  EXPECT_THAT(shown, HasSubstr("  10/s"));
  EXPECT_THAT(shown, HasSubstr(" left\n"));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  EXPECT_LE(std::count(shown.begin(), shown.end(), '\n'), 6);
  EXPECT_EQ(view.last_round(), 143u);
}

TEST_F(ProgressViewTest, ATerminalLineIsRewritten) {
  ProgressView view(config_, out_, {.terminal = true, .color = false});
  view.Update(Round(1, 1, 1), At(0));
  view.Update(Round(1, 2, 2), At(0.01));  // too soon to redraw
  view.Update(Round(1, 3, 3), At(1));
  const std::string shown = Shown();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 0);
  EXPECT_THAT(shown, HasSubstr("\rtrain 1/100"));
  EXPECT_THAT(shown, Not(HasSubstr("train 2/100")));
  EXPECT_THAT(shown, HasSubstr("\rtrain 3/100"));
}

TEST_F(ProgressViewTest, AnUnconvergedOptimumIsNotCalledFound) {
  ProgressView view(config_, out_, {});
  v1::Observation last = Round(0, 500, 500);
  last.mutable_rounds(0)->set_gradient_norm(0.1);
  last.mutable_progress()->set_state(v1::DONE);
  view.Update(last, At(0));
  EXPECT_THAT(Shown(), HasSubstr("above the tolerance"));
}

TEST_F(ProgressViewTest, FixedPointsShowWhichOneABarAndTheTimeLeft) {
  v1::FixedPoint& phase = *config_.add_phases()->mutable_fixed_point();
  for (const uint32_t steps : {10u, 20u}) phase.add_steps(steps);
  ProgressView view(config_, out_, {.terminal = true});
  for (uint64_t i = 1; i <= 6; ++i) {
    v1::Observation news = Round(2, i, i);
    v1::RoundRecord& record = *news.mutable_rounds(0);
    record.set_kind(v1::FIXED_POINT_ROUND);
    record.set_seconds(0.9);
    if (i == 4) record.mutable_fixed_point()->set_rounds(4);
    view.Update(news, At(double(i)));
  }
  // 4 rounds of 10 steps and 2 of 20 took 5.4 s; as many again as the first has taken makes
  // 2 more of 20.
  EXPECT_THAT(Shown(), HasSubstr("fixed point H = 10, 1 of 2  ["));
  EXPECT_THAT(Shown(),
              HasSubstr("fixed point H = 20, 2 of 2  [######....]  about 3 s left  round 6"));
}

TEST_F(ProgressViewTest, AnOptimumNearEnoughForTheVerdictIsFound) {
  config_.mutable_phases(0)->mutable_optimum()->set_tolerance(0);
  config_.mutable_phases(0)->mutable_optimum()->set_max_rounds(500);
  ProgressView view(config_, out_, {});
  v1::Observation news = Round(0, 73, 73);
  news.mutable_rounds(0)->set_gradient_norm(1e-6);
  view.Update(news, At(1));
  v1::Observation done;
  done.mutable_progress()->set_state(v1::DONE);
  view.Update(done, At(2));
  EXPECT_THAT(Shown(), HasSubstr("optimum found in 73 rounds, |grad F| = 1e-06\n"));
}

TEST_F(ProgressViewTest, TroubleIsShownButNotEndlessly) {
  ProgressView view(config_, out_, {});
  v1::Observation events;
  for (int i = 0; i < 100; ++i) {
    v1::Event* event = events.add_events();
    event->set_kind(i % 2 == 0 ? v1::Event::JOINED : v1::Event::REFUSED);
    event->set_text("client a sent NaN");
  }
  view.Update(events, At(0));
  const std::string shown = Shown();
  EXPECT_THAT(shown, HasSubstr("refused: client a sent NaN\n"));
  EXPECT_THAT(shown, Not(HasSubstr("joined:")));
  EXPECT_THAT(shown, HasSubstr("more events follow"));
  EXPECT_LE(std::count(shown.begin(), shown.end(), '\n'), 23);
}

TEST_F(ProgressViewTest, RecordsThatComeAgainCountOnce) {
  ProgressView view(config_, out_, {});
  view.Update(Round(1, 5, 5), At(0));
  view.Update(Round(1, 4, 4), At(10));
  EXPECT_EQ(view.last_round(), 5u);
}

}  // namespace
}  // namespace leeway
