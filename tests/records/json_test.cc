#include "records/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

namespace leeway {
namespace {

std::string Number(double value) { return JsonWriter().Value(value).text(); }
std::string Text(absl::string_view value) { return JsonWriter().Value(value).text(); }

TEST(JsonTest, ObjectsAndArraysNest) {
  JsonWriter json;
  json.BeginObject();
  json.Field("a", uint32_t{1});
  json.Key("b").BeginArray().Value(0.5).BeginObject().EndObject().Null().EndArray();
  json.Key("c").BeginArray().EndArray();
  json.NullField("d");
  json.Field("e", "text");
  json.EndObject();
  EXPECT_EQ(json.text(),
            "{\n  \"a\": 1,\n  \"b\": [\n    0.5,\n    {},\n    null\n  ],\n  \"c\": [],\n"
            "  \"d\": null,\n  \"e\": \"text\"\n}");
}

TEST(JsonTest, DoublesComeBackAsTheyWere) {
  for (double value : {0.1, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 123456789.125}) {
    EXPECT_EQ(std::strtod(Number(value).c_str(), nullptr), value) << value;
  }
  EXPECT_EQ(Number(0.1), "0.10000000000000001");
}

TEST(JsonTest, WhatIsNoNumberIsNull) {
  EXPECT_EQ(Number(std::nan("")), "null");
  EXPECT_EQ(Number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(Number(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonTest, LargeIntegersAreExact) {
  EXPECT_EQ(JsonWriter().Value(std::numeric_limits<uint64_t>::max()).text(),
            "18446744073709551615");
}

TEST(JsonTest, TextIsEscaped) {
  EXPECT_EQ(Text("a\"b\\c\nd\te"), R"("a\"b\\c\nd\te")");
  EXPECT_EQ(Text(absl::string_view("\0\x1f", 2)), R"("\u0000\u001f")");
  EXPECT_EQ(Text("ρ² 😀"), "\"ρ² 😀\"");
}

TEST(JsonTest, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(Text("a\xff z"), R"("a\ufffd z")");
  EXPECT_EQ(Text("\xc3"), R"("\ufffd")");                      // cut off
  EXPECT_EQ(Text("\xc0\x80"), R"("\ufffd\ufffd")");            // overlong
  EXPECT_EQ(Text("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");  // a surrogate
}

}  // namespace
}  // namespace leeway
