#include "rueda/trace/chrome_format.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace rueda::trace {
namespace {

// Unnamed operations get a new name each, so a long job may have any number of names. Beyond this limit they
// share one track.
constexpr size_t kMaxTracks = 1u << 20;
constexpr std::string_view kOtherTracks = "other tensors";

// The length of the well-formed UTF-8 sequence at the start of text; 0 if there is none (Unicode
// 15, table 3-7).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : (lead & 0xF0) == 0xE0        ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogate
  if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // above U+10FFFF
  return length;
}

std::string number(int64_t value) { return std::to_string(value); }

// The end of an object that begins a slice. bytes: 0 = unknown
std::string args_of(int64_t bytes, std::string_view more) {
  if (bytes <= 0 && more.empty()) return "}";
  std::string text = R"(, "args": {)";
  if (bytes > 0) text += R"("bytes": )" + number(bytes);
  if (bytes > 0 && !more.empty()) text += ", ";
  return text.append(more) + "}}";
}

}  // namespace

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += text[0];
    } else if (c < 0x20 || c == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", c);
      out += escape.data();
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out + "\"";
}

ChromeFormat::ChromeFormat(Nanos start, int64_t epoch_micros) : start_(start) {
  metadata(R"({"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":)" +
           number(epoch_micros) + "}}");
  metadata(R"({"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}})");
}

// Where it is in the trace; announces the track and the rank when they first appear.
std::string ChromeFormat::place_of(const At& at) {
  const int64_t ts = ts_of(at.when);
  int64_t& last_ts = last_ts_[at.rank];
  last_ts = std::max(last_ts, ts);
  const int32_t pid = pid_of(at.track);
  announce_rank(pid, at.rank);
  return place(ts, pid, at.rank);
}

void ChromeFormat::begin(const At& at, std::string_view name, int64_t bytes, std::string_view args) {
  const std::string where = place_of(at);
  ++open_[at.rank][pid_of(at.track)];
  object(R"({"ph": "B", "name": )" + json_quote(name) + where + args_of(bytes, args));
}

void ChromeFormat::end(const At& at, std::string_view result) {
  std::map<int32_t, int32_t>& open = open_[at.rank];
  const auto here = open.find(pid_of(at.track));
  if (here == open.end()) return;  // the matching begin was lost
  if (--here->second == 0) open.erase(here);
  std::string args = "}";
  if (const size_t cut = result.find(' '); cut != std::string_view::npos)
    args = R"(, "args": {"dtype": )" + json_quote(result.substr(0, cut)) + R"(, "shape": )" +
           json_quote(result.substr(cut + 1)) + "}}";
  object(R"({"ph": "E")" + place_of(at) + args);
}

void ChromeFormat::instant(const At& at, std::string_view name) {
  const std::string where = place_of(at);
  object(R"({"ph": "i", "name": )" + json_quote(name) + where + R"(, "s": "t"})");
}

void ChromeFormat::counter(const At& at, std::string_view name, int64_t value) {
  const std::string where = place_of(at);
  object(R"({"ph": "C", "name": )" + json_quote(name) + where + R"(, "args": {"value": )" + number(value) +
         "}}");
}

void ChromeFormat::ready(const At& at, Rank member) {
  const std::string where = place_of(at);
  object(R"({"ph": "X", "name": ")" + number(member) + "\"" + where + R"(, "dur": 0})");
}

void ChromeFormat::cycle(Nanos when) {
  object(R"({"ph": "i", "name": "CYCLE_START", "ts": )" + number(ts_of(when)) + R"(, "s": "g"})");
}

void ChromeFormat::add_arrow(Rank rank, std::string_view track, Nanos when, const Arrow& arrow, bool starts) {
  std::array<char, 17> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(arrow.id));
  const std::string kind = starts ? R"("s")" : R"("f", "bp": "e")";
  object(R"({"ph": )" + kind + R"(, "name": )" + json_quote(arrow.name) + R"(, "cat": "arrival", "id": )" +
         json_quote(hex.data()) + place(ts_of(when), pid_of(track), rank) + "}");
}

void ChromeFormat::add_gap(Rank rank, int64_t dropped) {
  close_open(rank);
  object(R"({"ph": "i", "name": "DROPPED_EVENTS", "ts": )" + number(last_ts_[rank]) +
         R"(, "s": "g", "args": {"count": )" + number(dropped) + R"(, "rank": )" + number(rank) + "}}");
}

void ChromeFormat::close_open(Rank rank) {
  for (auto& [who, tracks] : open_) {
    if (rank >= 0 && who != rank) continue;
    for (const auto& [pid, count] : tracks)
      for (int32_t i = 0; i < count; ++i) object(R"({"ph": "E")" + place(last_ts_[who], pid, who) + "}");
    tracks.clear();
  }
}

std::vector<std::string> ChromeFormat::take() {
  std::vector<std::string> out;
  out.swap(out_);
  return out;
}

void ChromeFormat::metadata(const std::string& object) { object_text(object, true); }
void ChromeFormat::object(const std::string& object) { object_text(object, false); }

void ChromeFormat::object_text(const std::string& object, bool is_metadata) {
  // As in Horovod, only a metadata object ends its line, because scripts read the file by lines.
  out_.push_back((has_any_ ? (was_metadata_ ? ",\n" : ",") : "") + object);
  has_any_ = true;
  was_metadata_ = is_metadata;
}

int32_t ChromeFormat::pid_of(std::string_view track) {
  std::string name(pids_.size() < kMaxTracks || pids_.contains(std::string(track)) ? track : kOtherTracks);
  const auto [at, is_new] = pids_.try_emplace(name, static_cast<int32_t>(pids_.size()) + 1);
  if (is_new) {
    const std::string pid = number(at->second);
    metadata(R"({"name": "process_name", "ph": "M", "pid": )" + pid + R"(, "args": {"name": )" +
             json_quote(name) + "}}");
    metadata(R"({"name": "process_sort_index", "ph": "M", "pid": )" + pid + R"(, "args": {"sort_index": )" +
             pid + "}}");
  }
  return at->second;
}

void ChromeFormat::announce_rank(int32_t pid, Rank rank) {
  const auto named = rank_names_.find(rank);
  const bool has_name = named != rank_names_.end();
  if (rank == 0 && !has_ranks_) return;
  if (!announced_.insert(static_cast<int64_t>(pid) << 32 | rank).second) return;
  const std::string where = R"(, "ph": "M", "pid": )" + number(pid) + R"(, "tid": )" + number(rank);
  metadata(R"({"name": "thread_name")" + where + R"(, "args": {"name": )" +
           json_quote(has_name ? named->second.name : "rank " + number(rank)) + "}}");
  if (has_name)
    metadata(R"({"name": "thread_sort_index")" + where + R"(, "args": {"sort_index": )" +
             number(named->second.order) + "}}");
}

// Alone, rank 0 has no tid, as in a trace of Horovod. Beside others it needs one: viewers take the pid
// instead, which is the row of another rank.
std::string ChromeFormat::place(int64_t ts, int32_t pid, Rank rank) const {
  std::string text = R"(, "ts": )" + number(ts) + R"(, "pid": )" + number(pid);
  if (rank != 0 || has_ranks_) text += R"(, "tid": )" + number(rank);
  return text;
}

int64_t ChromeFormat::ts_of(Nanos when) const { return std::max<Nanos>(when - start_, 0) / kMicrosecond; }

}  // namespace rueda::trace
