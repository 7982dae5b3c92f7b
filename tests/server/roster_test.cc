#include "server/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

// Begins an epoch with what has happened so far.
EpochChange Begin(Roster& roster, absl::Time now = kStart,
                  absl::Duration absent_after = absl::InfiniteDuration(), uint32_t fewest = 0) {
  EpochChange change = roster.NextEpoch(now, absent_after, fewest);
  roster.BeginEpoch(change);
  return change;
}

class RosterTest : public ::testing::Test {
 protected:
  // Session 1 hosts b and d, session 2 hosts a and c.
  RosterTest() : roster_(4) {
    EXPECT_TRUE(roster_.Join(1, 11, Clients({"d", "b"}), kStart).ok());
    EXPECT_FALSE(roster_.ready());
    EXPECT_TRUE(roster_.Join(2, 22, Clients({"a", "c"}), kStart).ok());
    EXPECT_TRUE(roster_.ready());
    Begin(roster_);
  }
  Roster roster_;
};

TEST_F(RosterTest, IsSortedSoArrivalOrderLeavesNoTrace) {
  std::vector<std::string> names;
  for (const Enrolment& e : roster_.clients()) names.push_back(e.id);
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(*roster_.Find("c"), 2u);
  EXPECT_FALSE(roster_.Find("e"));
  EXPECT_THAT(roster_.HostedBy(1), ElementsAre(3, 1));
  EXPECT_EQ(roster_.host(1).position, 1u);
}

TEST(RosterEvaluatorTest, IsNoPartOfThePopulation) {
  Roster roster(2);
  ASSERT_TRUE(roster.Join(1, 11, {{"a central test set", 0, 50}}, kStart).ok());
  ASSERT_TRUE(roster.Join(2, 22, Clients({"b"}), kStart).ok());
  EXPECT_FALSE(roster.ready());
  EXPECT_EQ(roster.joined(), 1u);
  ASSERT_TRUE(roster.Join(3, 33, Clients({"c"}), kStart).ok());
  EXPECT_TRUE(roster.ready());
  Begin(roster);
  EXPECT_EQ(roster.population(), 2u);
  EXPECT_EQ(roster.clients()[2].id, "a central test set");
  EXPECT_FALSE(roster.Quarantine("a central test set"));  // it is never drawn
  // The same after a restart.
  EXPECT_EQ(Roster(roster.clients(), kStart).population(), 2u);
  EXPECT_EQ(Roster(roster.clients(), kStart).expected(), 2u);
}

TEST_F(RosterTest, TheSameInstanceTakesOverAnotherIsRefused) {
  EXPECT_EQ(roster_.Join(7, 77, Clients({"a"}), kStart).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(roster_.Join(8, 22, Clients({"a", "c"}), kStart).ok());
  EXPECT_EQ(roster_.joined(), 4u);
  roster_.Leave(2, kStart);  // the old stream's end comes late and must not matter
  EXPECT_EQ(roster_.joined(), 4u);
  EXPECT_EQ(roster_.host(0).session, 8u);
}

TEST_F(RosterTest, AProcessThatComesBackWithFewerClientsHasLostTheOthers) {
  const absl::Time later = kStart + absl::Seconds(5);
  ASSERT_TRUE(roster_.Join(8, 22, Clients({"a"}), later).ok());
  EXPECT_TRUE(roster_.connected(0));
  EXPECT_FALSE(roster_.connected(2));
  EXPECT_EQ(roster_.host(2).gone_since, later);
}

TEST_F(RosterTest, NewcomersEnterWithTheNextEpochAndMoveNobody) {
  ASSERT_TRUE(roster_.Join(9, 99, {{"x", 7, 0}, {"0", 5, 0}, {"b2", 0, 9}}, kStart).ok());
  EXPECT_FALSE(roster_.Find("x"));
  EXPECT_EQ(roster_.waiting(), 3u);
  EXPECT_THAT(roster_.HostedBy(9), ElementsAre(kNoIndex, kNoIndex, kNoIndex));
  EXPECT_THAT(roster_.eligible(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(roster_.Join(10, 100, Clients({"x"}), kStart).code(),
            absl::StatusCode::kAlreadyExists);  // it waits in another process
  Begin(roster_);
  EXPECT_EQ(roster_.epoch(), 2u);
  // By name, evaluators after clients; those who were there keep their indices.
  EXPECT_EQ(*roster_.Find("0"), 4u);
  EXPECT_EQ(*roster_.Find("x"), 5u);
  EXPECT_EQ(*roster_.Find("b2"), 6u);
  EXPECT_EQ(*roster_.Find("a"), 0u);
  EXPECT_THAT(roster_.HostedBy(9), ElementsAre(5, 4, 6));
  EXPECT_THAT(roster_.HostedBy(1), ElementsAre(3, 1));
  EXPECT_EQ(roster_.host(4).position, 1u);
  EXPECT_THAT(roster_.eligible(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(roster_.Evaluators(), ElementsAre(6));
  EXPECT_EQ(roster_.population(), 6u);
  EXPECT_EQ(roster_.examples(), 52u);
  EXPECT_EQ(roster_.waiting(), 0u);
  EXPECT_TRUE(roster_.NextEpoch(kStart, absl::Seconds(1), 0).empty());
}

TEST_F(RosterTest, ANewcomerThatHasGoneBeforeItsEpochLeavesNoTrace) {
  ASSERT_TRUE(roster_.Join(9, 99, Clients({"e"}), kStart).ok());
  roster_.Leave(9, kStart);
  EXPECT_EQ(roster_.waiting(), 0u);
  EXPECT_TRUE(roster_.NextEpoch(kStart, absl::InfiniteDuration(), 0).empty());
  EXPECT_TRUE(roster_.Join(10, 100, Clients({"e"}), kStart).ok());
}

TEST_F(RosterTest, WhoIsAwayTooLongLeavesAndReturns) {
  roster_.Leave(1, kStart);
  EXPECT_TRUE(roster_.NextEpoch(kStart + absl::Seconds(9), absl::Seconds(10), 0).empty());
  EXPECT_TRUE(roster_.NextEpoch(kStart + absl::Hours(9), absl::InfiniteDuration(), 0).empty());
  EXPECT_THAT(Begin(roster_, kStart + absl::Seconds(10), absl::Seconds(10)).left,
              ElementsAre(1, 3));
  EXPECT_THAT(roster_.eligible(), ElementsAre(0, 2));
  EXPECT_EQ(roster_.population(), 2u);
  EXPECT_EQ(roster_.examples(), 20u);
  // It is back before the next epoch, but is not drawn.
  ASSERT_TRUE(roster_.Join(9, 99, Clients({"b"}), kStart + absl::Seconds(11)).ok());
  EXPECT_THAT(roster_.HostedBy(9), ElementsAre(1));
  EXPECT_THAT(roster_.eligible(), ElementsAre(0, 2));
  EXPECT_EQ(roster_.waiting(), 1u);
  EXPECT_THAT(Begin(roster_, kStart + absl::Seconds(12), absl::Seconds(10)).returned,
              ElementsAre(1));
  EXPECT_THAT(roster_.eligible(), ElementsAre(0, 1, 2));
}

TEST_F(RosterTest, NobodyLeavesIfTooFewWouldStay) {
  roster_.Leave(1, kStart);
  const absl::Time late = kStart + absl::Hours(1);
  EXPECT_TRUE(roster_.NextEpoch(late, absl::Seconds(10), 3).empty());
  EXPECT_EQ(roster_.NextEpoch(late, absl::Seconds(10), 2).left.size(), 2u);
  roster_.Leave(2, kStart);
  EXPECT_TRUE(roster_.NextEpoch(late, absl::Seconds(10), 0).empty());
}

TEST_F(RosterTest, ARestartedRosterIsInTheSameEpoch) {
  roster_.CountRefused("b");
  ASSERT_TRUE(roster_.Quarantine("b"));
  const std::vector<ClientIndex> away = {1, 2};
  Roster restarted(roster_.clients(), kStart, 5, away);
  restarted.Restore(roster_.standings());
  EXPECT_EQ(restarted.epoch(), 5u);
  EXPECT_EQ(restarted.population(), 2u);
  EXPECT_THAT(restarted.eligible(), ElementsAre(0, 3));
  ASSERT_TRUE(restarted.Join(1, 11, Clients({"b", "c"}), kStart).ok());
  EXPECT_THAT(Begin(restarted).returned, ElementsAre(1, 2));
  EXPECT_THAT(restarted.eligible(), ElementsAre(0, 2, 3));  // b is still in quarantine
}

TEST_F(RosterTest, FollowsAPlan) {
  EXPECT_TRUE(absl::IsUnavailable(roster_.FollowPlan({5, {"e"}, {}}).status()));
  ASSERT_TRUE(roster_.Join(9, 99, Clients({"f", "e"}), kStart).ok());
  const absl::StatusOr<EpochChange> change = roster_.FollowPlan({5, {"e"}, {"d", "b"}});
  ASSERT_TRUE(change.ok()) << change.status();
  roster_.BeginEpoch(*change);
  EXPECT_THAT(roster_.eligible(), ElementsAre(0, 2, 4));
  EXPECT_EQ(roster_.clients().size(), 5u);  // f waits on
  const absl::StatusOr<EpochChange> back = roster_.FollowPlan({6, {"b", "f"}, {}});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(back->returned, ElementsAre(1));
  EXPECT_EQ(back->entered.size(), 1u);
}

TEST(RosterShapeTest, IsThatOfMostClientsWhoeverComesFirst) {
  Roster roster(3);
  ASSERT_TRUE(roster.Join(1, 11, Clients({"wrong"}), kStart, "{7}").ok());
  EXPECT_EQ(roster.CommonShape(), "{7}");
  ASSERT_TRUE(roster.Join(2, 22, Clients({"a"}), kStart, "{30}").ok());
  EXPECT_EQ(roster.CommonShape(), "{30}");  // a tie: 'a' comes before 'wrong'
  ASSERT_TRUE(roster.Join(3, 33, Clients({"z"}), kStart, "{30}").ok());
  EXPECT_EQ(roster.CommonShape(), "{30}");
  const std::vector<Roster::OddSession> odd = roster.SessionsWithout("{30}");
  ASSERT_EQ(odd.size(), 1u);
  EXPECT_EQ(odd[0].session, 1u);
  EXPECT_EQ(odd[0].client, "wrong");
  EXPECT_EQ(odd[0].shape, "{7}");
}

TEST(RosterClosedTest, RefusesWhoComesLate) {
  Roster roster(1, true);
  ASSERT_TRUE(roster.Join(1, 11, Clients({"a"}), kStart).ok());
  EXPECT_EQ(roster.Join(2, 22, Clients({"b"}), kStart).code(),
            absl::StatusCode::kFailedPrecondition);  // also before the first epoch
  Begin(roster);
  const absl::Status stranger = roster.Join(9, 99, Clients({"e"}), kStart);
  EXPECT_EQ(stranger.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(stranger.message()), HasSubstr("'e'"));
  EXPECT_THAT(std::string(stranger.message()), HasSubstr("cohort.closed"));
}

TEST_F(RosterTest, DataThatChangedAreNoticed) {
  roster_.Leave(1, kStart);
  EXPECT_EQ(roster_.Join(10, 11, {{"b", 11, 2}}, kStart).code(),
            absl::StatusCode::kFailedPrecondition);
  Roster roster(2);
  constexpr uint64_t kDigest = 0x1234567890abcdef;
  ASSERT_TRUE(roster.Join(1, 11, {{"a", 10, 2, kDigest}, {"b", 10, 2}}, kStart).ok());
  Begin(roster);
  roster.Leave(1, kStart);
  const absl::Status changed = roster.Join(2, 22, {{"a", 10, 2, kDigest << 4}}, kStart);
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(changed.message()), HasSubstr("digest 23456789, it was 12345678"));
  // What is not known is no change.
  EXPECT_TRUE(roster.Join(3, 33, {{"a", 10, 2, 0}, {"b", 10, 2, kDigest}}, kStart).ok());
}

TEST_F(RosterTest, KnowsWhoWentAMomentAgo) {
  roster_.Leave(1, kStart + absl::Seconds(10));
  EXPECT_THAT(roster_.GoneAfter(kStart), ElementsAre("b", "d"));
  EXPECT_THAT(roster_.GoneAfter(kStart + absl::Seconds(10)), ElementsAre());
  // A restarted server counts from its own start.
  const Roster restarted(roster_.clients(), kStart + absl::Seconds(20));
  EXPECT_EQ(restarted.GoneAfter(kStart + absl::Seconds(19)).size(), 4u);
  EXPECT_EQ(restarted.host(0).gone_since, kStart + absl::Seconds(20));
}

TEST_F(RosterTest, AQuarantinedClientIsNotDrawnAgainAlsoAfterARestart) {
  EXPECT_EQ(roster_.CountRefused("d"), 1u);
  EXPECT_EQ(roster_.CountRefused("b"), 1u);
  EXPECT_EQ(roster_.CountRefused("b"), 2u);
  EXPECT_EQ(roster_.CountRefused("nobody"), 0u);
  EXPECT_TRUE(roster_.Quarantine("b"));
  EXPECT_FALSE(roster_.Quarantine("b"));
  EXPECT_FALSE(roster_.Quarantine("nobody"));
  EXPECT_THAT(roster_.eligible(), ElementsAre(0, 2, 3));
  EXPECT_THAT(roster_.standings(), ElementsAre(Standing{1, 2, true}, Standing{3, 1, false}));

  Roster restarted(roster_.clients(), kStart);
  restarted.Restore(roster_.standings());
  EXPECT_THAT(restarted.eligible(), ElementsAre(0, 2, 3));
  EXPECT_EQ(restarted.CountRefused("d"), 2u);
  EXPECT_EQ(restarted.standings().front(), (Standing{1, 2, true}));
}

}  // namespace
}  // namespace leeway
