// A folder for a timeline, and what its files say.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "rueda/trace/timeline.h"

namespace rueda::trace::timeline_fixture {

using nlohmann::json;

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    std::string pattern = testing::TempDir() + "rueda_trace_XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~TimelineTest() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] std::string path(const std::string& name = "t.json") const { return dir_ + "/" + name; }
  static std::string read(const std::string& file) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  static TimelineOptions to_file(const std::string& file, Rank size = 1) {
    return {.path = file, .rank = 0, .size = size};
  }
  static TimelineOptions going_on(const std::string& file) { return {.path = file, .goes_on = true}; }
  // What begins in the trace, as "track: name". Nothing, if it is read in the middle of a write.
  static std::vector<std::string> begins(const std::string& file, Rank rank = 0) {
    std::map<int, std::string> tracks;
    std::vector<std::string> found;
    const json events = json::parse(read(file), nullptr, false);
    if (events.is_discarded()) return found;
    for (const json& object : events) {
      if (object.value("name", "") == "process_name" && object["args"].contains("name"))
        tracks[object["pid"]] = object["args"]["name"];
      if (object["ph"] == "B" && object.value("tid", 0) == rank)
        found.push_back(tracks[object["pid"]] + ": " + object["name"].get<std::string>());
    }
    return found;
  }

  std::string dir_;
};

inline void begin(Recorder& recorder, Rank rank, int64_t job = 7, const std::string& host = "a") {
  recorder.begin_epoch({.epoch = 1,
                        .rank = rank,
                        .size = 3,
                        .job = job,
                        .began = monotonic_now(),
                        .host = host,
                        .host_key = host});
}

// One allreduce of this tensor, from `from` to from + 6 us.
template <class Sink>
void record_call(Sink& sink, std::string_view tensor, Nanos from = monotonic_now()) {
  constexpr Nanos kStep = kMicrosecond;
  const CallTrace call{.order = 5,
                       .name = tensor,
                       .backend = "native",
                       .tensors = 1,
                       .submitted = from,
                       .ordered = from + kStep,
                       .started = from + 2 * kStep,
                       .transfer_began = from + 3 * kStep,
                       .unpack_began = from + 5 * kStep,
                       .ended = from + 6 * kStep};
  sink.record(call);
  sink.record(TensorTrace{.name = tensor,
                          .dtype = "float32",
                          .shape = "[2, 3]",
                          .submitted = from,
                          .call = call_tag(call.generation, call.order)});
}

inline void expect_balanced(const json& events) {
  std::map<std::pair<int, int>, int> depth;
  for (const json& object : events) {
    if (!object.contains("pid")) continue;
    int& open = depth[{object["pid"].get<int>(), object.value("tid", 0)}];
    if (object["ph"] == "B") ++open;
    if (object["ph"] == "E") --open;
    ASSERT_GE(open, 0);
  }
  for (const auto& [where, open] : depth) EXPECT_EQ(open, 0) << where.first << " " << where.second;
}

}  // namespace rueda::trace::timeline_fixture
