#include "records/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace leeway {
namespace {

std::string Number(double value) { return JsonLine(value); }

TEST(JsonTextTest, KeepsTheOrderOfKeys) {
  const nlohmann::ordered_json json = {{"z", 1}, {"a", {0.5, nullptr}}, {"m", "text"}};
  EXPECT_EQ(JsonLine(json), R"({"z":1,"a":[0.5,null],"m":"text"})");
  EXPECT_EQ(JsonText(json),
            "{\n  \"z\": 1,\n  \"a\": [\n    0.5,\n    null\n  ],\n  \"m\": \"text\"\n}");
}

TEST(JsonTextTest, DoublesComeBackAsTheyWere) {
  for (double value : {0.1, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 123456789.125,
                       2.2250738585072014e-308, 9007199254740993.0}) {
    const double back = std::strtod(Number(value).c_str(), nullptr);
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value)) << value;
  }
  EXPECT_EQ(Number(0.1), "0.1");
}

TEST(JsonTextTest, WhatIsNoNumberIsNull) {
  EXPECT_EQ(Number(std::nan("")), "null");
  EXPECT_EQ(Number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(Number(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonTextTest, LargeIntegersAreExact) {
  EXPECT_EQ(JsonLine(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
}

TEST(JsonTextTest, TextIsEscapedAndBytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(JsonLine("a\"b\\c\nd\te"), R"("a\"b\\c\nd\te")");
  EXPECT_EQ(JsonLine("ρ² 😀"), "\"ρ² 😀\"");
  EXPECT_EQ(JsonLine("a\xff z"), "\"a\uFFFD z\"");
  for (const char* bytes : {"\xc3", "\xc0\x80", "\xed\xa0\x80"}) {
    EXPECT_NE(JsonLine(bytes).find("\uFFFD"), std::string::npos);
  }
}

}  // namespace
}  // namespace leeway
