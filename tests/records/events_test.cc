#include "records/events.h"

#include <gtest/gtest.h>

namespace leeway {
namespace {

TEST(EventsTest, EveryKindComesBackFromItsName) {
  for (int i = 0; i <= v1::Event::Kind_MAX; ++i) {
    if (!v1::Event::Kind_IsValid(i)) continue;
    const auto kind = static_cast<EventKind>(i);
    EXPECT_EQ(ParseEventKind(EventKindName(kind)), kind);
  }
  EXPECT_EQ(EventKindName(v1::Event::QUARANTINED), "quarantined");
  EXPECT_EQ(ParseEventKind("of another version"), v1::Event::KIND_UNSPECIFIED);
}

TEST(EventsTest, ComingIsNoTroubleBeingRefusedIs) {
  EXPECT_FALSE(IsTrouble(v1::Event::JOINED));
  EXPECT_TRUE(IsTrouble(v1::Event::REFUSED));
  EXPECT_TRUE(IsTrouble(v1::Event::QUARANTINED));
}

}  // namespace
}  // namespace leeway
