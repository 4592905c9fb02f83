#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rueda/trace/chrome_format.h"

namespace rueda::trace::chrome_format_test {
namespace {

using nlohmann::json;

std::string text_of(ChromeFormat& format) {
  std::string text = "[\n";
  for (const std::string& object : format.take()) text += object;
  return text + "]";
}

TEST(ChromeFormat, has_the_shape_that_operators_know) {
  ChromeFormat format(1'000'000, 1686700000000000);
  format.cycle(1'900'000);
  format.begin({0, "a", 2'000'000}, "NEGOTIATE_ALLREDUCE");
  format.ready({0, "a", 2'100'000}, 1);
  format.end({0, "a", 2'200'999}, "float32 [2, 3]");
  EXPECT_EQ(text_of(format),
            "[\n"
            R"({"name": "process_name", "ph": "M", "pid": 0, "args": {)"
            R"("start_time_since_epoch_in_micros":1686700000000000}},)"
            "\n"
            R"({"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},)"
            "\n"
            R"({"ph": "i", "name": "CYCLE_START", "ts": 900, "s": "g"},)"
            R"({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "a"}},)"
            "\n"
            R"({"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},)"
            "\n"
            R"({"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1000, "pid": 1},)"
            R"({"ph": "X", "name": "1", "ts": 1100, "pid": 1, "dur": 0},)"
            R"({"ph": "E", "ts": 1200, "pid": 1, "args": {"dtype": "float32", "shape": "[2, 3]"}}])");
}

TEST(ChromeFormat, other_ranks_are_named_threads) {
  ChromeFormat format(0, 0);
  format.take();
  format.begin({2, "a", 8'000}, "ALLREDUCE");
  format.end({2, "a", -3'000});
  const json events = json::parse("[" + [&] {
    std::string text;
    for (const std::string& object : format.take()) text += object;
    return text.substr(text.find('{')) + "]";
  }());
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[2],
            json::parse(R"({"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"rank 2"}})"));
  EXPECT_EQ(events[3], json::parse(R"({"ph":"B","name":"ALLREDUCE","ts":8,"pid":1,"tid":2})"));
  EXPECT_EQ(events[4], json::parse(R"({"ph":"E","ts":0,"pid":1,"tid":2})"));
}

TEST(ChromeFormat, names_of_any_bytes_give_valid_json) {
  for (const std::string& name :
       {std::string("a\"b\\c\n\t\x01"), std::string("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
        std::string("\xff\xfe"), std::string("\xc3"), std::string("\xed\xa0\x80"), std::string("\xc0\xaf"),
        std::string("\0x", 2)}) {
    EXPECT_TRUE(json::accept(json_quote(name))) << name;
  }
  EXPECT_EQ(json::parse(json_quote("a\"b\\c\n")).get<std::string>(), "a\"b\\c\n");
  EXPECT_EQ(json::parse(json_quote("caf\xc3\xa9")).get<std::string>(), "caf\xc3\xa9");
  EXPECT_EQ(json::parse(json_quote("a\xff")).get<std::string>(), "a\xef\xbf\xbd");
}

TEST(ChromeFormat, begins_and_ends_stay_balanced_around_a_gap) {
  ChromeFormat format(0, 0);
  format.end({0, "a", 1'000});  // its begin is unknown
  format.begin({0, "a", 2'000}, "ALLREDUCE");
  format.begin({0, "a", 3'000}, "QUEUE");
  format.begin({1, "a", 3'000}, "ALLREDUCE");
  format.add_gap(0, 7);
  format.end({0, "a", 9'000});  // ended at the gap
  format.end({1, "a", 9'000});
  format.begin({0, "a", 10'000}, "ALLREDUCE");
  format.close_open(-1);
  std::map<int, int> depth;
  int gaps = 0;
  for (const json& object : json::parse(text_of(format))) {
    int& open = depth[object.value("tid", 0)];
    if (object["ph"] == "B") ++open;
    if (object["ph"] == "E") --open;
    EXPECT_GE(open, 0);
    if (object.value("name", "") == "DROPPED_EVENTS") gaps += object["args"]["count"].get<int>();
  }
  EXPECT_EQ(depth[0], 0);
  EXPECT_EQ(depth[1], 0);
  EXPECT_EQ(gaps, 7);
}

}  // namespace
}  // namespace rueda::trace::chrome_format_test
