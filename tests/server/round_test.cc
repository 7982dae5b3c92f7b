#include "server/round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
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

RoundSpec Spec(uint64_t round, std::vector<ClientIndex> cohort, uint32_t minimum) {
  RoundSpec spec;
  spec.round = round;
  spec.cohort = std::move(cohort);
  spec.minimum = minimum;
  spec.deadline = kStart + absl::Seconds(10);
  return spec;
}

// Counts what it is given; the reports themselves are not looked at.
class CountingAggregator : public Aggregator {
 public:
  absl::Status Admit(const v1::ReportHeader&) const override { return absl::OkStatus(); }
  absl::Status Add(const v1::ReportHeader&, absl::Span<const std::byte>,
                   absl::Span<const GroupShare>) override {
    return absl::OkStatus();
  }
  bool CanClose() const override { return can_close; }
  Tally Close() override { return Tally(); }
  bool can_close = true;
};

ReportKey Key(uint64_t round, uint32_t attempt, std::vector<std::string> clients, uint64_t digest) {
  return {round, attempt, std::move(clients), digest};
}

class RoundTest : public ::testing::Test {
 protected:
  // Session 1 hosts b and d, session 2 hosts a and c.
  RoundTest() : roster_(4) {
    EXPECT_TRUE(roster_.Join(1, 11, Clients({"d", "b"}), kStart).ok());
    EXPECT_TRUE(roster_.Join(2, 22, Clients({"a", "c"}), kStart).ok());
    roster_.BeginEpoch(roster_.NextEpoch(kStart, absl::InfiniteDuration(), 0));
  }
  std::vector<Assignment> Open(RoundSpec spec) {
    auto aggregator = std::make_unique<CountingAggregator>();
    aggregator_ = aggregator.get();
    round_ = std::make_unique<Round>(std::move(spec), &roster_, std::move(aggregator));
    return round_->Work();
  }
  absl::Status Report(uint64_t round, const std::string& client, uint64_t digest = 1) {
    const ReportKey key = Key(round, 1, {client}, digest);
    const auto admission = round_->BeginReport(key, kStart);
    if (!admission.ok()) return admission.status();
    if (admission->replay) return absl::AlreadyExistsError("replay");
    round_->EndReport(key, true);
    return absl::OkStatus();
  }
  Roster roster_;
  std::unique_ptr<Round> round_ = std::make_unique<Round>();
  CountingAggregator* aggregator_ = nullptr;
};

TEST_F(RoundTest, AProcessIsIdleWhenAllItsSampledClientsHaveReported) {
  Open(Spec(1, {0, 1, 3}, 3));  // of session 1, b and d; of session 2, a
  EXPECT_FALSE(round_->IsIdle(1, 1, "b"));
  ASSERT_TRUE(Report(1, "b").ok());
  EXPECT_FALSE(round_->IsIdle(1, 1, "b"));
  ASSERT_TRUE(round_->Fail("d"));
  EXPECT_TRUE(round_->IsIdle(1, 1, "b"));
  EXPECT_FALSE(round_->IsIdle(1, 1, "a"));
  ASSERT_TRUE(Report(1, "a").ok());
  EXPECT_TRUE(round_->IsIdle(1, 1, "a"));
  EXPECT_FALSE(round_->IsIdle(1, 1, "z"));
  round_->Close();
  EXPECT_TRUE(round_->IsIdle(1, 1, "a"));
  Open(Spec(2, {1}, 1));
  EXPECT_FALSE(round_->IsIdle(1, 1, "a"));  // the next orders have left
  EXPECT_TRUE(round_->IsIdle(2, 1, "a"));
  roster_.Leave(2, kStart);
  EXPECT_FALSE(round_->IsIdle(2, 1, "a"));
}

TEST_F(RoundTest, ClientsHearWhichRoundsStateCounts) {
  EXPECT_TRUE(Open(Spec(3, {0, 1}, 2))[0].state_rounds.empty());
  roster_.CountIn(4, {0, 1});
  roster_.CountIn(5, {0, 3});
  RoundSpec spec = Spec(6, {0, 1, 2, 3}, 4);
  spec.states_since = 5;  // what counted before it is of another phase
  const std::vector<Assignment> work = Open(spec);
  ASSERT_EQ(work.size(), 2u);
  // Session 1 hosts b (1) and d (3), session 2 hosts a (0) and c (2).
  EXPECT_THAT(work[0].state_rounds, ElementsAre(0, 5));
  EXPECT_THAT(work[1].state_rounds, ElementsAre(5, 0));
  EXPECT_THAT(round_->WorkFor(2).state_rounds, ElementsAre(5, 0));
}

TEST(RoundEvaluatorTest, IsWaitedForButNotNeeded) {
  Roster roster(2);
  ASSERT_TRUE(roster.Join(1, 11, {{"e", 0, 50}, {"a", 7, 0}, {"b", 7, 0}}, kStart).ok());
  roster.BeginEpoch(roster.NextEpoch(kStart, absl::InfiniteDuration(), 0));
  RoundSpec spec = Spec(1, {0, 1, 2}, 2);
  spec.evaluators = 1;
  const auto after = [&](std::vector<std::string> reporters) {
    auto round = std::make_unique<Round>(spec, &roster, std::make_unique<CountingAggregator>());
    for (const std::string& client : reporters) {
      const ReportKey key = Key(1, 1, {client}, 1);
      EXPECT_TRUE(round->BeginReport(key, kStart).ok());
      round->EndReport(key, true);
    }
    return round;
  };
  // The evaluator's report does not stand for a client's.
  const auto one = after({"e", "a"});
  EXPECT_EQ(one->reports(), 1u);
  EXPECT_EQ(one->StateAt(kStart + absl::Seconds(11)), Round::State::kShort);
  const auto both = after({"a", "b"});
  EXPECT_EQ(both->StateAt(kStart), Round::State::kCollecting);
  EXPECT_EQ(both->StateAt(kStart + absl::Seconds(11)), Round::State::kComplete);
  const Round::Result result = after({"a", "b", "e"})->Close();
  EXPECT_EQ(result.sampled, 2u);
  EXPECT_EQ(result.reports, 2u);
  EXPECT_THAT(result.accepted, ElementsAre(0, 1, 2));
}

// Session 2, of a and c, has gone at kStart.
TEST_F(RoundTest, WhoHasGoneIsNotWaitedForOnceTheMinimumIsThere) {
  RoundSpec spec = Spec(1, {0, 1, 2, 3}, 2);
  spec.return_time = absl::Seconds(2);
  Open(spec);
  ASSERT_TRUE(Report(1, "b").ok());
  roster_.Leave(2, kStart);
  EXPECT_EQ(round_->StateAt(kStart + absl::Seconds(9)), Round::State::kCollecting);
  EXPECT_EQ(round_->NextChange(), spec.deadline);
  ASSERT_TRUE(Report(1, "d").ok());
  // A moment to come back in.
  EXPECT_EQ(round_->StateAt(kStart + absl::Seconds(1)), Round::State::kCollecting);
  EXPECT_EQ(round_->NextChange(), kStart + absl::Seconds(2));
  EXPECT_EQ(round_->StateAt(kStart + absl::Seconds(2)), Round::State::kComplete);
  EXPECT_THAT(round_->Close().missing, ElementsAre(0, 2));
}

TEST_F(RoundTest, WhoHasGoneIsWaitedForWhereAllAreNeeded) {
  RoundSpec spec = Spec(1, {0, 1, 3}, 3);
  spec.return_time = absl::Seconds(2);
  Open(spec);
  roster_.Leave(2, kStart);
  ASSERT_TRUE(Report(1, "b").ok());
  ASSERT_TRUE(Report(1, "d").ok());
  EXPECT_EQ(round_->StateAt(kStart + absl::Seconds(9)), Round::State::kCollecting);
  EXPECT_EQ(round_->NextChange(), spec.deadline);
  EXPECT_THAT(round_->Absent(), ElementsAre(0));
  EXPECT_EQ(round_->StateAt(spec.deadline), Round::State::kShort);
}

TEST_F(RoundTest, WhoIsConnectedOrHasComeBackIsWaitedFor) {
  RoundSpec spec = Spec(1, {0, 1, 2, 3}, 1);
  spec.return_time = absl::Seconds(2);
  Open(spec);
  ASSERT_TRUE(Report(1, "b").ok());
  roster_.Leave(2, kStart);
  EXPECT_EQ(round_->StateAt(kStart + absl::Seconds(5)), Round::State::kCollecting);  // for d
  EXPECT_EQ(round_->NextChange(), spec.deadline);
  ASSERT_TRUE(Report(1, "d").ok());
  EXPECT_EQ(round_->StateAt(kStart + absl::Seconds(5)), Round::State::kComplete);
  ASSERT_TRUE(roster_.Join(3, 22, Clients({"a", "c"}), kStart + absl::Seconds(5)).ok());
  EXPECT_EQ(round_->StateAt(kStart + absl::Seconds(5)), Round::State::kCollecting);
  ASSERT_TRUE(Report(1, "a").ok());
  ASSERT_TRUE(Report(1, "c").ok());
  EXPECT_EQ(round_->StateAt(kStart + absl::Seconds(5)), Round::State::kComplete);
}

TEST_F(RoundTest, WaitsForItsAggregator) {
  Open(Spec(1, {0}, 1));
  ASSERT_TRUE(Report(1, "a").ok());
  aggregator_->can_close = false;
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kCollecting);
  aggregator_->can_close = true;
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kComplete);
}

TEST_F(RoundTest, AReportIsWeighedByWhatItsClientsJoinedWith) {
  RoundSpec spec = Spec(1, {0, 1, 2}, 3);
  spec.groups = {1, 0, 1};
  spec.group_count = 2;
  spec.by_examples = true;
  Open(spec);
  const auto admission = round_->BeginReport(Key(1, 1, {"c", "b", "a"}, 1), kStart);
  ASSERT_TRUE(admission.ok());
  ASSERT_EQ(admission->shares.size(), 2u);
  EXPECT_EQ(admission->shares[0].clients, 1u);
  EXPECT_EQ(admission->shares[1].clients, 2u);
  EXPECT_EQ(admission->shares[1].weight, 20u);
  EXPECT_EQ(admission->shares[1].test_examples, 4u);
}

TEST_F(RoundTest, GivesEachSessionItsOwnPositions) {
  const auto work = Open(Spec(1, {0, 1, 3}, 3));
  ASSERT_EQ(work.size(), 2u);
  EXPECT_THAT(work[0].clients, ElementsAre(1, 0));  // session 1: b is its 1st, d its 0th
  EXPECT_THAT(work[1].clients, ElementsAre(0));     // session 2: a
}

TEST_F(RoundTest, CompleteWhenAllHaveReported) {
  Open(Spec(1, {0, 1}, 2));
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kCollecting);
  EXPECT_TRUE(Report(1, "a").ok());
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kCollecting);
  EXPECT_TRUE(Report(1, "b").ok());
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kComplete);
  EXPECT_THAT(round_->Close().accepted, ElementsAre(0, 1));
}

TEST_F(RoundTest, AtTheDeadlineTheMinimumDecides) {
  Open(Spec(1, {0, 1, 2}, 2));
  ASSERT_TRUE(Report(1, "a").ok());
  const absl::Time late = kStart + absl::Seconds(11);
  EXPECT_EQ(round_->StateAt(late), Round::State::kShort);
  ASSERT_TRUE(Report(1, "c").ok());
  EXPECT_EQ(round_->StateAt(late), Round::State::kComplete);
}

TEST_F(RoundTest, NoRoundEndsWhileAReportIsBeingAdded) {
  Open(Spec(1, {0}, 1));
  const std::vector<std::string> names = {"a"};
  ASSERT_TRUE(round_->BeginReport(Key(1, 1, names, 5), kStart).ok());
  EXPECT_EQ(round_->StateAt(absl::InfiniteFuture()), Round::State::kCollecting);
  round_->EndReport(Key(1, 1, names, 5), false);
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kCollecting);
  EXPECT_TRUE(Report(1, "a", 6).ok());  // it may try again after a broken transfer
}

TEST_F(RoundTest, NothingIsAddedAfterTheDeadline) {
  Open(Spec(1, {0, 1}, 1));
  ASSERT_TRUE(Report(1, "a", 7).ok());
  const std::vector<std::string> a = {"a"};
  const std::vector<std::string> b = {"b"};
  const absl::Time deadline = round_->spec().deadline;
  // Else a client that sends broken reports without end would keep the round open.
  EXPECT_EQ(ReasonOf(round_->BeginReport(Key(1, 1, b, 1), deadline).status()), "late");
  EXPECT_TRUE(round_->BeginReport(Key(1, 1, a, 7), deadline)->replay);
  EXPECT_EQ(round_->StateAt(deadline), Round::State::kComplete);
}

TEST_F(RoundTest, CheckingAReportChangesNothing) {
  Open(Spec(1, {0, 1}, 2));
  const std::vector<std::string> a = {"a"};
  const std::vector<std::string> c = {"c"};
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(round_->CheckReport(Key(1, 1, a, 7), kStart)->replay);
    EXPECT_EQ(ReasonOf(round_->CheckReport(Key(1, 1, c, 7), kStart).status()), "not_sampled");
  }
  ASSERT_TRUE(Report(1, "a", 7).ok());
  EXPECT_TRUE(round_->CheckReport(Key(1, 1, a, 7), kStart)->replay);
  EXPECT_EQ(ReasonOf(round_->CheckReport(Key(1, 1, a, 8), kStart).status()), "other_bytes");
}

TEST_F(RoundTest, FailuresEndARoundWithoutWaiting) {
  Open(Spec(1, {0, 1}, 2));
  ASSERT_TRUE(Report(1, "a").ok());
  EXPECT_TRUE(round_->Fail("b"));
  EXPECT_FALSE(round_->Fail("b"));
  EXPECT_FALSE(round_->Fail("a"));
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kShort);
  EXPECT_EQ(Report(1, "b").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RoundTest, ReplayCountsOnceAndOtherBytesAreRefused) {
  Open(Spec(3, {0, 1}, 2));
  ASSERT_TRUE(Report(3, "a", 7).ok());
  const std::vector<std::string> names = {"a"};
  EXPECT_TRUE(round_->BeginReport(Key(3, 1, names, 7), kStart)->replay);
  EXPECT_EQ(round_->BeginReport(Key(3, 1, names, 8), kStart).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(round_->reports(), 1u);
}

TEST_F(RoundTest, StaleFutureUnsampledAndDoubledReportsAreRefused) {
  Open(Spec(3, {0, 1}, 2));
  EXPECT_EQ(Report(2, "a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Report(4, "a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Report(3, "c").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Report(3, "stranger").code(), absl::StatusCode::kPermissionDenied);
  const std::vector<std::string> twice = {"a", "a"};
  EXPECT_EQ(round_->BeginReport(Key(3, 1, twice, 1), kStart).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Report(3, "a").ok());  // an honest report succeeds right after
}

TEST_F(RoundTest, AReturningProcessGetsWhatItStillOwes) {
  Open(Spec(1, {0, 2, 3}, 3));
  ASSERT_TRUE(Report(1, "a").ok());
  roster_.Leave(2, kStart);
  ASSERT_TRUE(roster_.Join(5, 22, Clients({"a", "c"}), kStart).ok());
  EXPECT_THAT(round_->WorkFor(5).clients, ElementsAre(1));  // c; a has reported
}

TEST_F(RoundTest, WithSparesTheRoundEndsWithTheFirstReports) {
  RoundSpec spec = Spec(1, {0, 1, 2}, 2);
  spec.enough = 2;
  Open(spec);
  ASSERT_TRUE(Report(1, "c").ok());
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kCollecting);
  ASSERT_TRUE(Report(1, "a").ok());
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kComplete);
  const absl::Status late = Report(1, "b");
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.message()), HasSubstr("too late"));
  EXPECT_EQ(Report(1, "a").message(), "replay");  // still the first receipt
  EXPECT_THAT(round_->Close().accepted, ElementsAre(0, 2));
}

// Session 1 hosts b and d, session 2 hosts a and c.
RoundSpec Replacing(absl::Duration after) {
  RoundSpec spec = Spec(1, {0, 1}, 2);  // a and b
  spec.opened = kStart;
  spec.replace_after = after;
  spec.reserves = {2, 3};
  return spec;
}

TEST_F(RoundTest, AClientWhoseProcessIsGoneTooLongIsReplaced) {
  Open(Replacing(absl::Seconds(3)));
  roster_.Leave(1, kStart + absl::Seconds(1));
  const absl::Time due = kStart + absl::Seconds(4);
  EXPECT_EQ(round_->NextChange(), due);
  EXPECT_TRUE(round_->Replace(due - absl::Milliseconds(1)).empty());
  const auto work = round_->Replace(due);
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].session, 2u);
  EXPECT_THAT(work[0].clients, ElementsAre(1));  // c
  EXPECT_EQ(round_->replaced(), 1u);
  // b comes back: its place is taken; the two that hold places finish the round.
  ASSERT_TRUE(roster_.Join(3, 33, Clients({"b", "d"}), kStart).ok());
  EXPECT_TRUE(round_->WorkFor(3).clients.empty());
  EXPECT_THAT(std::string(Report(1, "b").message()), HasSubstr("another took it"));
  ASSERT_TRUE(Report(1, "c").ok());
  ASSERT_TRUE(Report(1, "a").ok());
  EXPECT_EQ(round_->StateAt(due), Round::State::kComplete);
  EXPECT_THAT(round_->Close().accepted, ElementsAre(0, 2));
}

TEST_F(RoundTest, ASlowClientWithALiveStreamIsNeverReplaced) {
  RoundSpec spec = Replacing(absl::Seconds(3));
  spec.deadline = absl::InfiniteFuture();
  Open(spec);
  EXPECT_TRUE(round_->Replace(kStart + absl::Hours(24)).empty());
  EXPECT_EQ(round_->StateAt(kStart + absl::Hours(24)), Round::State::kCollecting);
}

TEST_F(RoundTest, WithoutReplacementTheRoundWaitsForTheClientToComeBack) {
  Open(Spec(1, {0, 1}, 2));
  roster_.Leave(1, kStart);
  EXPECT_TRUE(round_->Replace(kStart + absl::Seconds(9)).empty());
  EXPECT_EQ(round_->NextChange(), kStart + absl::Seconds(10));
  ASSERT_TRUE(roster_.Join(3, 33, Clients({"b", "d"}), kStart).ok());
  EXPECT_THAT(round_->WorkFor(3).clients, ElementsAre(0));
}

TEST_F(RoundTest, NobodyIsReplacedByOneWhoIsGoneToo) {
  RoundSpec spec = Replacing(absl::Seconds(1));
  spec.reserves = {3};  // d, in b's process
  Open(spec);
  roster_.Leave(1, kStart);
  EXPECT_TRUE(round_->Replace(kStart + absl::Seconds(5)).empty());
  EXPECT_EQ(round_->replaced(), 0u);
  // A server that has just been restarted finds everybody gone; reserves come back, too.
  ASSERT_TRUE(roster_.Join(9, 99, Clients({"d"}), kStart + absl::Seconds(6)).ok());
  EXPECT_EQ(round_->Replace(kStart + absl::Seconds(6)).size(), 1u);
  EXPECT_EQ(round_->replaced(), 1u);
}

TEST_F(RoundTest, AfterARestartAbsenceCountsFromIt) {
  roster_ = Roster(roster_.clients(), kStart);
  ASSERT_TRUE(roster_.Join(1, 22, Clients({"a", "c"}), kStart).ok());
  Open(Replacing(absl::Seconds(3)));
  EXPECT_TRUE(round_->Replace(kStart + absl::Seconds(2)).empty());
  EXPECT_EQ(round_->Replace(kStart + absl::Seconds(3)).size(), 1u);
}

TEST_F(RoundTest, PastAndFutureRoundsAreToldApart) {
  EXPECT_THAT(std::string(round_->CheckOpen(1, 1).message()), HasSubstr("not open yet"));
  Open(Spec(2, {0, 1}, 2));
  EXPECT_TRUE(round_->CheckOpen(2, 1).ok());
  EXPECT_THAT(std::string(round_->CheckOpen(1, 9).message()), HasSubstr("is over"));
  EXPECT_THAT(std::string(round_->CheckOpen(2, 2).message()), HasSubstr("not open yet"));
  EXPECT_THAT(std::string(round_->CheckOpen(3, 1).message()), HasSubstr("not open yet"));
  round_->Close();
  EXPECT_THAT(std::string(round_->CheckOpen(2, 1).message()), HasSubstr("too late"));
}

TEST_F(RoundTest, WhetherACopyCountsIsOpenWhileTheReportIsBeingAdded) {
  Open(Spec(1, {0, 1}, 2));
  const ReportKey key = Key(1, 1, {"a"}, 7);
  ASSERT_TRUE(round_->BeginReport(key, kStart).ok());
  const auto copy = round_->BeginReport(key, kStart);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_FALSE(copy->replay);
  EXPECT_TRUE(copy->undecided);
  // The first was damaged on its way: the copy counts instead.
  EXPECT_TRUE(round_->EndReport(key, false));
  const auto again = round_->BeginReport(key, kStart);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->undecided || again->replay);
  EXPECT_EQ(again->shares.size(), 1u);
  EXPECT_FALSE(round_->EndReport(key, true));  // nobody asked meanwhile
  EXPECT_TRUE(round_->BeginReport(key, kStart)->replay);
}

TEST_F(RoundTest, ASpareReportTakesThePlaceOfOneThatCannotBeAdded) {
  RoundSpec spec = Spec(1, {0, 1, 2}, 2);
  spec.enough = 2;
  Open(spec);
  ASSERT_TRUE(Report(1, "a").ok());
  const ReportKey bad = Key(1, 1, {"b"}, 1);
  ASSERT_TRUE(round_->BeginReport(bad, kStart).ok());
  const auto spare = round_->BeginReport(Key(1, 1, {"c"}, 1), kStart);
  ASSERT_TRUE(spare.ok()) << spare.status();
  EXPECT_TRUE(spare->undecided);
  EXPECT_TRUE(round_->EndReport(bad, false));
  ASSERT_TRUE(round_->Fail("b"));
  ASSERT_TRUE(Report(1, "c").ok());
  EXPECT_EQ(round_->StateAt(kStart), Round::State::kComplete);
  EXPECT_THAT(round_->Close().accepted, ElementsAre(0, 2));
}

TEST_F(RoundTest, ASpareReportIsLateOnceThoseBeforeItCount) {
  RoundSpec spec = Spec(1, {0, 1, 2}, 2);
  spec.enough = 2;
  Open(spec);
  ASSERT_TRUE(Report(1, "a").ok());
  const ReportKey good = Key(1, 1, {"b"}, 1);
  ASSERT_TRUE(round_->BeginReport(good, kStart).ok());
  EXPECT_TRUE(round_->BeginReport(Key(1, 1, {"c"}, 1), kStart)->undecided);
  EXPECT_TRUE(round_->EndReport(good, true));
  EXPECT_EQ(ReasonOf(round_->BeginReport(Key(1, 1, {"c"}, 1), kStart).status()), "late");
}

TEST_F(RoundTest, AProcessThatReturnsWhileItsReportIsBeingAddedIsAskedAgain) {
  Open(Spec(1, {0, 1}, 2));  // a, of session 2, and b
  const ReportKey key = Key(1, 1, {"a"}, 7);
  ASSERT_TRUE(round_->BeginReport(key, kStart).ok());
  roster_.Leave(2, kStart);
  ASSERT_TRUE(roster_.Join(3, 22, Clients({"a", "c"}), kStart).ok());
  EXPECT_THAT(round_->WorkFor(3).clients, ElementsAre(0));
  round_->EndReport(key, true);
  EXPECT_THAT(round_->WorkFor(3).clients, ElementsAre());
}

}  // namespace
}  // namespace leeway
