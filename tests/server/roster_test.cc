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

class RosterTest : public ::testing::Test {
 protected:
  // Session 1 hosts b and d, session 2 hosts a and c.
  RosterTest() : roster_(4) {
    EXPECT_TRUE(roster_.Join(1, 11, Clients({"d", "b"}), kStart).ok());
    EXPECT_FALSE(roster_.ready());
    EXPECT_TRUE(roster_.Join(2, 22, Clients({"a", "c"}), kStart).ok());
    EXPECT_TRUE(roster_.ready());
    roster_.Freeze();
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
  roster.Freeze();
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

TEST_F(RosterTest, OnceFrozenIsClosed) {
  const absl::Status stranger = roster_.Join(9, 99, Clients({"e"}), kStart);
  EXPECT_EQ(stranger.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(stranger.message()), HasSubstr("'e'"));
  roster_.Leave(1, kStart);
  EXPECT_EQ(roster_.Join(10, 11, {{"b", 11, 2}}, kStart).code(),
            absl::StatusCode::kFailedPrecondition);  // its data changed
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
