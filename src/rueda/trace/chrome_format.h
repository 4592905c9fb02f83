// The text of a Chrome trace, in the shape of Horovod's timeline: a "process" for each tensor name, and in it
// a "thread" for each rank. Pure: no file, no clock, no thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "rueda/base/clock.h"
#include "rueda/base/types.h"

namespace rueda::trace {

// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so that the file is always valid.
std::string json_quote(std::string_view text);

// Makes JSON objects, each with the separator before it. Begins and ends are balanced per track and rank: an
// end without a begin is left out, and where records are missing, everything that is open is closed.
class ChromeFormat {
 public:
  // start: on the clock of all times here; epoch_micros: the same moment in microseconds since 1970.
  ChromeFormat(Nanos start, int64_t epoch_micros);

  // Events that are added after name_rank() carry this name. The viewer sorts ranks by `order`. A rank
  // without a name is shown as "rank 3".
  struct RankName {
    std::string name;
    int64_t order = 0;
  };
  void name_rank(Rank rank, RankName name) {
    rank_names_[rank] = std::move(name);
    has_ranks_ = true;
  }
  // Other ranks will be drawn beside rank 0, which then needs a row of its own.
  void expect_ranks() { has_ranks_ = true; }
  struct At {
    Rank rank = 0;
    std::string_view track;  // the name of a tensor, mostly
    Nanos when = 0;
  };
  // bytes: 0 = unknown; args: JSON members besides them: `"rate": 8, "algorithm": "ring"`.
  void begin(const At& at, std::string_view name, int64_t bytes = 0, std::string_view args = {});
  // Of the innermost that is open. result: "float32 [2, 3]", of a whole operation; else empty.
  void end(const At& at, std::string_view result = {});
  void instant(const At& at, std::string_view name);
  void counter(const At& at, std::string_view name, int64_t value);
  // A member of the process set is ready for the tensor.
  void ready(const At& at, Rank member);
  void cycle(Nanos when);
  void add_gap(Rank rank, int64_t dropped);
  // One end of an arrow, at the slice of this track that is open at this time.
  struct Arrow {
    uint64_t id = 0;
    std::string_view name;
  };
  void add_arrow(Rank rank, std::string_view track, Nanos when, const Arrow& arrow, bool starts);
  // Ends everything that is open, of one rank or (-1) of all, before the file ends.
  void close_open(Rank rank);

  // The objects since the last call, in order. Between "[\n" and "]" they form an array.
  std::vector<std::string> take();

 private:
  std::string place_of(const At& at);
  void metadata(const std::string& object);
  void object(const std::string& object);
  void object_text(const std::string& object, bool is_metadata);
  int32_t pid_of(std::string_view track);
  void announce_rank(int32_t pid, Rank rank);
  [[nodiscard]] std::string place(int64_t ts, int32_t pid, Rank rank) const;
  [[nodiscard]] int64_t ts_of(Nanos when) const;

  Nanos start_;
  bool has_any_ = false;
  bool was_metadata_ = false;
  bool has_ranks_ = false;
  std::map<Rank, int64_t> last_ts_;  // where an event ends that is closed early
  std::vector<std::string> out_;
  std::unordered_map<std::string, int32_t> pids_;  // track -> 1, 2, … in order of first appearance
  std::map<Rank, RankName> rank_names_;
  std::unordered_set<int64_t> announced_;            // pid << 32 | rank
  std::map<Rank, std::map<int32_t, int32_t>> open_;  // rank -> pid -> how many have begun and not ended
};

}  // namespace rueda::trace
