#include "server/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/reason.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kStart = absl::FromUnixSeconds(1000);

std::vector<Enrolment> Clients(std::initializer_list<const char*> names) {
  std::vector<Enrolment> out;
  for (const char* name : names) out.push_back({name, 10, 2});
  return out;
}

RoundSpec Round(uint64_t round, std::vector<ClientIndex> cohort, uint32_t minimum) {
  RoundSpec spec;
  spec.round = round;
  spec.cohort = std::move(cohort);
  spec.minimum = minimum;
  spec.deadline = kStart + absl::Seconds(10);
  return spec;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  // Session 1 hosts b and d, session 2 hosts a and c.
  CoordinatorTest() : coordinator_(4) {
    EXPECT_TRUE(coordinator_.Join(1, 11, Clients({"d", "b"})).ok());
    EXPECT_FALSE(coordinator_.ready());
    EXPECT_TRUE(coordinator_.Join(2, 22, Clients({"a", "c"})).ok());
    EXPECT_TRUE(coordinator_.ready());
    coordinator_.Freeze();
  }
  absl::Status Report(uint64_t round, const std::string& client, uint64_t digest = 1) {
    const std::vector<std::string> names = {client};
    const auto state = coordinator_.BeginReport(round, 1, names, digest, kStart);
    if (!state.ok()) return state.status();
    if (*state == Coordinator::ReportState::kReplay) return absl::AlreadyExistsError("replay");
    coordinator_.EndReport(names, true);
    return absl::OkStatus();
  }
  Coordinator coordinator_;
};

TEST_F(CoordinatorTest, RosterIsSortedSoArrivalOrderLeavesNoTrace) {
  std::vector<std::string> names;
  for (const Enrolment& e : coordinator_.roster()) names.push_back(e.id);
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "d"));
}

TEST_F(CoordinatorTest, AProcessIsIdleWhenAllItsSampledClientsHaveReported) {
  coordinator_.OpenRound(Round(1, {0, 1, 3}, 3));  // of session 1, b and d; of session 2, a
  EXPECT_FALSE(coordinator_.IsIdle(1, 1, "b"));
  ASSERT_TRUE(Report(1, "b").ok());
  EXPECT_FALSE(coordinator_.IsIdle(1, 1, "b"));
  ASSERT_TRUE(coordinator_.Fail("d"));
  EXPECT_TRUE(coordinator_.IsIdle(1, 1, "b"));
  EXPECT_FALSE(coordinator_.IsIdle(1, 1, "a"));
  ASSERT_TRUE(Report(1, "a").ok());
  EXPECT_TRUE(coordinator_.IsIdle(1, 1, "a"));
  EXPECT_FALSE(coordinator_.IsIdle(1, 1, "z"));
  coordinator_.CloseRound();
  EXPECT_TRUE(coordinator_.IsIdle(1, 1, "a"));
  coordinator_.OpenRound(Round(2, {1}, 1));
  EXPECT_FALSE(coordinator_.IsIdle(1, 1, "a"));  // the next orders have left
  EXPECT_TRUE(coordinator_.IsIdle(2, 1, "a"));
  coordinator_.Leave(2, kStart);
  EXPECT_FALSE(coordinator_.IsIdle(2, 1, "a"));
}

TEST(CoordinatorEvaluatorTest, IsNoPartOfThePopulation) {
  Coordinator coordinator(2);
  ASSERT_TRUE(coordinator.Join(1, 11, {{"a central test set", 0, 50}}).ok());
  ASSERT_TRUE(coordinator.Join(2, 22, Clients({"b"})).ok());
  EXPECT_FALSE(coordinator.ready());
  EXPECT_EQ(coordinator.joined(), 1u);
  ASSERT_TRUE(coordinator.Join(3, 33, Clients({"c"})).ok());
  EXPECT_TRUE(coordinator.ready());
  coordinator.Freeze();
  EXPECT_EQ(coordinator.population(), 2u);
  EXPECT_EQ(coordinator.roster()[2].id, "a central test set");
  // The same after a restart.
  EXPECT_EQ(Coordinator(coordinator.roster()).population(), 2u);
  EXPECT_EQ(Coordinator(coordinator.roster()).expected(), 2u);
}

TEST(CoordinatorEvaluatorTest, IsWaitedForButNotNeeded) {
  Coordinator coordinator(2);
  ASSERT_TRUE(coordinator.Join(1, 11, {{"e", 0, 50}, {"a", 7, 0}, {"b", 7, 0}}).ok());
  coordinator.Freeze();
  const auto report = [&](const std::string& client) {
    const std::vector<std::string> names = {client};
    ASSERT_TRUE(coordinator.BeginReport(1, 1, names, 1, kStart).ok());
    coordinator.EndReport(names, true);
  };
  RoundSpec spec = Round(1, {0, 1, 2}, 2);
  spec.evaluators = 1;
  coordinator.OpenRound(spec);
  report("e");
  report("a");
  EXPECT_EQ(coordinator.reports(), 1u);
  // The evaluator's report does not stand for a client's.
  EXPECT_EQ(coordinator.State(kStart + absl::Seconds(11)), Coordinator::RoundState::kShort);
  coordinator.CloseRound();
  coordinator.OpenRound(spec);
  report("a");
  report("b");
  EXPECT_EQ(coordinator.State(kStart), Coordinator::RoundState::kCollecting);
  EXPECT_EQ(coordinator.State(kStart + absl::Seconds(11)), Coordinator::RoundState::kComplete);
}

TEST_F(CoordinatorTest, OpenRoundGivesEachSessionItsOwnPositions) {
  const auto work = coordinator_.OpenRound(Round(1, {0, 1, 3}, 3));
  ASSERT_EQ(work.size(), 2u);
  EXPECT_THAT(work[0].clients, ElementsAre(1, 0));  // session 1: b is its 1st, d its 0th
  EXPECT_THAT(work[1].clients, ElementsAre(0));     // session 2: a
}

TEST_F(CoordinatorTest, CompleteWhenAllHaveReported) {
  coordinator_.OpenRound(Round(1, {0, 1}, 2));
  EXPECT_EQ(coordinator_.State(kStart), Coordinator::RoundState::kCollecting);
  EXPECT_TRUE(Report(1, "a").ok());
  EXPECT_EQ(coordinator_.State(kStart), Coordinator::RoundState::kCollecting);
  EXPECT_TRUE(Report(1, "b").ok());
  EXPECT_EQ(coordinator_.State(kStart), Coordinator::RoundState::kComplete);
  EXPECT_THAT(coordinator_.CloseRound(), ElementsAre(0, 1));
}

TEST_F(CoordinatorTest, AtTheDeadlineTheMinimumDecides) {
  coordinator_.OpenRound(Round(1, {0, 1, 2}, 2));
  ASSERT_TRUE(Report(1, "a").ok());
  const absl::Time late = kStart + absl::Seconds(11);
  EXPECT_EQ(coordinator_.State(late), Coordinator::RoundState::kShort);
  ASSERT_TRUE(Report(1, "c").ok());
  EXPECT_EQ(coordinator_.State(late), Coordinator::RoundState::kComplete);
}

TEST_F(CoordinatorTest, NoRoundEndsWhileAReportIsBeingFolded) {
  coordinator_.OpenRound(Round(1, {0}, 1));
  const std::vector<std::string> names = {"a"};
  ASSERT_TRUE(coordinator_.BeginReport(1, 1, names, 5, kStart).ok());
  EXPECT_EQ(coordinator_.State(absl::InfiniteFuture()), Coordinator::RoundState::kCollecting);
  coordinator_.EndReport(names, false);
  EXPECT_EQ(coordinator_.State(kStart), Coordinator::RoundState::kCollecting);
  EXPECT_TRUE(Report(1, "a", 6).ok());  // it may try again after a broken transfer
}

TEST_F(CoordinatorTest, NothingIsFoldedAfterTheDeadline) {
  coordinator_.OpenRound(Round(1, {0, 1}, 1));
  ASSERT_TRUE(Report(1, "a", 7).ok());
  const std::vector<std::string> a = {"a"};
  const std::vector<std::string> b = {"b"};
  const absl::Time deadline = coordinator_.spec().deadline;
  // Else a client that sends broken reports without end would keep the round open.
  EXPECT_EQ(ReasonOf(coordinator_.BeginReport(1, 1, b, 1, deadline).status()), "late");
  EXPECT_EQ(*coordinator_.BeginReport(1, 1, a, 7, deadline), Coordinator::ReportState::kReplay);
  EXPECT_EQ(coordinator_.State(deadline), Coordinator::RoundState::kComplete);
}

TEST_F(CoordinatorTest, CheckingAReportChangesNothing) {
  coordinator_.OpenRound(Round(1, {0, 1}, 2));
  const std::vector<std::string> a = {"a"};
  const std::vector<std::string> c = {"c"};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(*coordinator_.CheckReport(1, 1, a, 7, kStart), Coordinator::ReportState::kFold);
    EXPECT_EQ(ReasonOf(coordinator_.CheckReport(1, 1, c, 7, kStart).status()), "not_sampled");
  }
  ASSERT_TRUE(Report(1, "a", 7).ok());
  EXPECT_EQ(*coordinator_.CheckReport(1, 1, a, 7, kStart), Coordinator::ReportState::kReplay);
  EXPECT_EQ(ReasonOf(coordinator_.CheckReport(1, 1, a, 8, kStart).status()), "other_bytes");
}

TEST_F(CoordinatorTest, FailuresEndARoundWithoutWaiting) {
  coordinator_.OpenRound(Round(1, {0, 1}, 2));
  ASSERT_TRUE(Report(1, "a").ok());
  EXPECT_TRUE(coordinator_.Fail("b"));
  EXPECT_FALSE(coordinator_.Fail("b"));
  EXPECT_FALSE(coordinator_.Fail("a"));
  EXPECT_EQ(coordinator_.State(kStart), Coordinator::RoundState::kShort);
  EXPECT_EQ(Report(1, "b").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CoordinatorTest, ReplayCountsOnceAndOtherBytesAreRefused) {
  coordinator_.OpenRound(Round(3, {0, 1}, 2));
  ASSERT_TRUE(Report(3, "a", 7).ok());
  const std::vector<std::string> names = {"a"};
  EXPECT_EQ(*coordinator_.BeginReport(3, 1, names, 7, kStart), Coordinator::ReportState::kReplay);
  EXPECT_EQ(coordinator_.BeginReport(3, 1, names, 8, kStart).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(coordinator_.reports(), 1u);
}

TEST_F(CoordinatorTest, StaleFutureUnsampledAndDoubledReportsAreRefused) {
  coordinator_.OpenRound(Round(3, {0, 1}, 2));
  EXPECT_EQ(Report(2, "a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Report(4, "a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Report(3, "c").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Report(3, "stranger").code(), absl::StatusCode::kPermissionDenied);
  const std::vector<std::string> twice = {"a", "a"};
  EXPECT_EQ(coordinator_.BeginReport(3, 1, twice, 1, kStart).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Report(3, "a").ok());  // an honest report succeeds right after
}

TEST_F(CoordinatorTest, AReturningProcessGetsWhatItStillOwes) {
  coordinator_.OpenRound(Round(1, {0, 2, 3}, 3));
  ASSERT_TRUE(Report(1, "a").ok());
  coordinator_.Leave(2, kStart);
  ASSERT_TRUE(coordinator_.Join(5, 22, Clients({"a", "c"})).ok());
  EXPECT_THAT(coordinator_.WorkFor(5).clients, ElementsAre(1));  // c; a has reported
}

TEST_F(CoordinatorTest, TheSameInstanceTakesOverAnotherIsRefused) {
  EXPECT_EQ(coordinator_.Join(7, 77, Clients({"a"})).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(coordinator_.Join(8, 22, Clients({"a", "c"})).ok());
  EXPECT_EQ(coordinator_.joined(), 4u);
  coordinator_.Leave(2, kStart);  // the old stream's end comes late and must not unseat the new one
  EXPECT_EQ(coordinator_.joined(), 4u);
}

TEST_F(CoordinatorTest, TheFrozenRosterIsClosed) {
  const absl::Status stranger = coordinator_.Join(9, 99, Clients({"e"}));
  EXPECT_EQ(stranger.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(stranger.message()), HasSubstr("'e'"));
  coordinator_.Leave(1, kStart);
  EXPECT_EQ(coordinator_.Join(10, 11, {{"b", 11, 2}}).code(),
            absl::StatusCode::kFailedPrecondition);  // its data changed
}

TEST_F(CoordinatorTest, WithSparesTheRoundEndsWithTheFirstReports) {
  RoundSpec spec = Round(1, {0, 1, 2}, 2);
  spec.enough = 2;
  coordinator_.OpenRound(spec);
  ASSERT_TRUE(Report(1, "c").ok());
  EXPECT_EQ(coordinator_.State(kStart), Coordinator::RoundState::kCollecting);
  ASSERT_TRUE(Report(1, "a").ok());
  EXPECT_EQ(coordinator_.State(kStart), Coordinator::RoundState::kComplete);
  const absl::Status late = Report(1, "b");
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.message()), HasSubstr("too late"));
  EXPECT_EQ(Report(1, "a").message(), "replay");  // still the first receipt
  EXPECT_THAT(coordinator_.CloseRound(), ElementsAre(0, 2));
}

// Session 1 hosts b and d, session 2 hosts a and c.
RoundSpec Replacing(absl::Duration after) {
  RoundSpec spec = Round(1, {0, 1}, 2);  // a and b
  spec.opened = kStart;
  spec.replace_after = after;
  spec.reserves = {2, 3};
  return spec;
}

TEST_F(CoordinatorTest, AClientWhoseProcessIsGoneTooLongIsReplaced) {
  coordinator_.OpenRound(Replacing(absl::Seconds(3)));
  coordinator_.Leave(1, kStart + absl::Seconds(1));
  const absl::Time due = kStart + absl::Seconds(4);
  EXPECT_EQ(coordinator_.NextChange(), due);
  EXPECT_TRUE(coordinator_.Replace(due - absl::Milliseconds(1)).empty());
  const auto work = coordinator_.Replace(due);
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].session, 2u);
  EXPECT_THAT(work[0].clients, ElementsAre(1));  // c
  EXPECT_EQ(coordinator_.replaced(), 1u);
  // b comes back: its place is taken; the two that hold places finish the round.
  ASSERT_TRUE(coordinator_.Join(3, 33, Clients({"b", "d"})).ok());
  EXPECT_TRUE(coordinator_.WorkFor(3).clients.empty());
  EXPECT_THAT(std::string(Report(1, "b").message()), HasSubstr("another took it"));
  ASSERT_TRUE(Report(1, "c").ok());
  ASSERT_TRUE(Report(1, "a").ok());
  EXPECT_EQ(coordinator_.State(due), Coordinator::RoundState::kComplete);
  EXPECT_THAT(coordinator_.CloseRound(), ElementsAre(0, 2));
}

TEST_F(CoordinatorTest, ASlowClientWithALiveStreamIsNeverReplaced) {
  RoundSpec spec = Replacing(absl::Seconds(3));
  spec.deadline = absl::InfiniteFuture();
  coordinator_.OpenRound(spec);
  EXPECT_TRUE(coordinator_.Replace(kStart + absl::Hours(24)).empty());
  EXPECT_EQ(coordinator_.State(kStart + absl::Hours(24)), Coordinator::RoundState::kCollecting);
}

TEST_F(CoordinatorTest, WithoutReplacementTheRoundWaitsForTheClientToComeBack) {
  coordinator_.OpenRound(Round(1, {0, 1}, 2));
  coordinator_.Leave(1, kStart);
  EXPECT_TRUE(coordinator_.Replace(kStart + absl::Seconds(9)).empty());
  EXPECT_EQ(coordinator_.NextChange(), kStart + absl::Seconds(10));
  ASSERT_TRUE(coordinator_.Join(3, 33, Clients({"b", "d"})).ok());
  EXPECT_THAT(coordinator_.WorkFor(3).clients, ElementsAre(0));
}

TEST_F(CoordinatorTest, NobodyIsReplacedByOneWhoIsGoneToo) {
  RoundSpec spec = Replacing(absl::Seconds(1));
  spec.reserves = {3};  // d, in b's process
  coordinator_.OpenRound(spec);
  coordinator_.Leave(1, kStart);
  EXPECT_TRUE(coordinator_.Replace(kStart + absl::Seconds(5)).empty());
  EXPECT_EQ(coordinator_.replaced(), 0u);
}

TEST_F(CoordinatorTest, AfterARestartAbsenceCountsFromTheFirstRound) {
  Coordinator restarted(coordinator_.roster());
  ASSERT_TRUE(restarted.Join(1, 22, Clients({"a", "c"})).ok());
  restarted.OpenRound(Replacing(absl::Seconds(3)));
  EXPECT_TRUE(restarted.Replace(kStart + absl::Seconds(2)).empty());
  EXPECT_EQ(restarted.Replace(kStart + absl::Seconds(3)).size(), 1u);
}

TEST_F(CoordinatorTest, AQuarantinedClientIsNotSampledAgain) {
  EXPECT_TRUE(coordinator_.Quarantine("b"));
  EXPECT_FALSE(coordinator_.Quarantine("b"));
  EXPECT_FALSE(coordinator_.Quarantine("nobody"));
  EXPECT_THAT(coordinator_.eligible(), ElementsAre(0, 2, 3));
}

TEST_F(CoordinatorTest, PastAndFutureRoundsAreToldApart) {
  EXPECT_THAT(std::string(coordinator_.CheckOpen(1, 1).message()), HasSubstr("not open yet"));
  coordinator_.OpenRound(Round(2, {0, 1}, 2));
  EXPECT_TRUE(coordinator_.CheckOpen(2, 1).ok());
  EXPECT_THAT(std::string(coordinator_.CheckOpen(1, 9).message()), HasSubstr("is over"));
  EXPECT_THAT(std::string(coordinator_.CheckOpen(2, 2).message()), HasSubstr("not open yet"));
  EXPECT_THAT(std::string(coordinator_.CheckOpen(3, 1).message()), HasSubstr("not open yet"));
  coordinator_.CloseRound();
  EXPECT_THAT(std::string(coordinator_.CheckOpen(2, 1).message()), HasSubstr("too late"));
}

}  // namespace
}  // namespace leeway
