#include "server/staging.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace leeway {
namespace {

class Waiter : public Staging::Upload {
 public:
  explicit Waiter(bool gone = false) : gone_(gone) {}
  std::unique_ptr<Buffer> OnGranted(std::unique_ptr<Buffer> given) override {
    ++grants;
    if (gone_) return given;
    buffer = std::move(given);
    return nullptr;
  }
  void OnSuperseded() override { ++superseded; }
  std::unique_ptr<Buffer> buffer;
  int grants = 0;
  int superseded = 0;

 private:
  const bool gone_;
};

v1::ReportHeader Of(const std::vector<std::string>& clients) {
  v1::ReportHeader header;
  for (const std::string& client : clients) header.add_clients(client);
  return header;
}

TEST(StagingTest, ABufferPassesBySoManyWhoAreGoneWithoutAStackOfThem) {
  Holdings holdings;
  Staging staging(holdings);
  const auto first = std::make_shared<Waiter>();
  std::vector<std::unique_ptr<Buffer>> held;
  while (auto buffer = staging.Take(8, first)) held.push_back(std::move(buffer));
  EXPECT_EQ(held.size(), 3u);
  const auto gone = std::make_shared<Waiter>(true);
  for (int i = 0; i < 200'000; ++i) EXPECT_EQ(staging.Take(8, gone), nullptr);
  const auto last = std::make_shared<Waiter>();
  EXPECT_EQ(staging.Take(8, last), nullptr);
  staging.Return(std::move(held[0]));
  EXPECT_NE(first->buffer, nullptr);
  EXPECT_EQ(gone->grants, 0);
  staging.Return(std::move(held[1]));
  EXPECT_EQ(gone->grants, 200'000);
  EXPECT_NE(last->buffer, nullptr);
  EXPECT_FALSE(staging.wanted());
}

TEST(StagingTest, WhoLeavesWaitsNoMore) {
  Holdings holdings;
  Staging staging(holdings);
  const auto waiter = std::make_shared<Waiter>();
  std::vector<std::unique_ptr<Buffer>> held;
  while (auto buffer = staging.Take(8, waiter)) held.push_back(std::move(buffer));
  EXPECT_TRUE(staging.wanted());
  staging.Leave(Of({"a"}), waiter);
  EXPECT_FALSE(staging.wanted());
  staging.Return(std::move(held[0]));
  EXPECT_EQ(waiter->grants, 0);
  EXPECT_NE(staging.Take(8, waiter), nullptr);
}

TEST(StagingTest, OfAClientsUploadsTheNewestStays) {
  Holdings holdings;
  Staging staging(holdings);
  const auto first = std::make_shared<Waiter>();
  const auto other = std::make_shared<Waiter>();
  const auto second = std::make_shared<Waiter>();
  const auto third = std::make_shared<Waiter>();
  staging.Enter(Of({"a", "b"}), first);
  staging.Enter(Of({"c"}), other);
  staging.Enter(Of({"b", "d"}), second);
  EXPECT_EQ(first->superseded, 1);
  staging.Leave(Of({"a", "b"}), first);
  staging.Leave(Of({"c"}), other);
  staging.Enter(Of({"a", "b", "c", "d"}), third);
  EXPECT_EQ(first->superseded, 1);
  EXPECT_EQ(other->superseded, 0);
  EXPECT_EQ(second->superseded, 1);  // once, though it had two of them
}

}  // namespace
}  // namespace leeway
