// The shape of Horovod's timeline: a "process" for each tensor and each row, in it a "thread" for each rank.
#include <iterator>
#include <map>

#include "rueda/base/limits.h"
#include "rueda/trace/chrome_format.h"
#include "timeline/trace_writer.h"

namespace rueda::timeline {
namespace {

class ChromeWriter final : public TraceWriter {
 public:
  ChromeWriter(Nanos start, int64_t start_micros) : format_(start, start_micros) {}

  void begin_rank(const RankFile& file) override {
    if (rank_ >= 0) format_.close_open(rank_);
    rank_ = file.rank;
    const int64_t host = hosts_.try_emplace(file.host_key, std::ssize(hosts_)).first->second;
    format_.name_rank(rank_, {.name = "host " + file.host + " / rank " + std::to_string(file.rank),
                              .order = host * kMaxRanks + rank_});
  }
  void slice_begin(Row row, std::string_view name, Nanos begin, std::span<const Detail> details) override {
    const std::string track = row.name();
    int64_t bytes = 0;
    std::string args;
    for (const Detail& detail : details) {
      if (detail.name == "bytes") {
        bytes = detail.value;
        continue;
      }
      if (!args.empty()) args += ", ";
      args.append("\"").append(detail.name).append("\": ");
      args += detail.text.empty() ? std::to_string(detail.value) : trace::json_quote(detail.text);
    }
    format_.begin({rank_, track, begin}, name, bytes, args);
    const Arrows arrows = std::exchange(arrows_, {});
    for (const uint64_t arrow : arrows.starting)
      format_.add_arrow(rank_, track, begin, {arrow, arrows.name}, true);
    if (arrows.ending != 0) format_.add_arrow(rank_, track, begin, {arrows.ending, arrows.name}, false);
  }
  void slice_end(Row row, Nanos end, std::string_view result) override {
    const std::string track = row.name();
    format_.end({rank_, track, end}, result);
  }
  void set_arrows(Arrows arrows) override { arrows_ = std::move(arrows); }
  // Chrome has one counter of a name in a "process", whatever the thread.
  void counter(Counter which, Nanos when, int64_t value) override {
    const std::string name = "rank " + std::to_string(rank_) + ": " + std::string(name_of(which));
    format_.counter({rank_, "counters", when}, name, value);
  }
  void instant(Row row, std::string_view name, Nanos when) override {
    const std::string track = row.name();
    format_.instant({rank_, track, when}, name);
  }
  void ready(Row row, Rank member, Nanos when) override {
    const std::string track = row.name();
    format_.ready({rank_, track, when}, member);
  }
  void gap(int64_t records) override { format_.add_gap(rank_, records); }

  std::string take() override {
    std::string text = std::exchange(is_first_, false) ? "[\n" : "";
    for (const std::string& object : format_.take()) text += object;
    return text;
  }
  std::string finish() override {
    format_.close_open(-1);
    return take() + "]\n";
  }

 private:
  trace::ChromeFormat format_;
  Arrows arrows_;  // of the next slice
  Rank rank_ = -1;
  std::map<std::string, int64_t> hosts_;  // in the order of their first ranks
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<TraceWriter> make_chrome_writer(Nanos start, int64_t start_micros) {
  return std::make_unique<ChromeWriter>(start, start_micros);
}

}  // namespace rueda::timeline
