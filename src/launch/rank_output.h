// Where the output of the ranks goes: lines with a prefix to our console, raw bytes to files, the last
// lines to memory.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/console.h"
#include "launch/line_turns.h"
#include "launch/output.h"
#include "rueda/base/clock.h"
#include "rueda/base/status.h"
#include "rueda/base/unique_fd.h"

namespace rueda::launch {

struct OutputOptions {
  PrefixStyle style;
  bool may_colour = true;               // colours are used on terminals, unless NO_COLOR is set
  std::optional<std::set<Rank>> shown;  // ranks on the console; unset = all
  std::string log_dir;                  // rank-0003.out and .err, raw, and .prom; "" = none
  std::string log_url;                  // where log_dir is copied, and how it is named to users; "" = nowhere
  std::string output_dir;               // rank.3/stdout and stderr, as horovodrun names them; "" = none
};

class RankOutput {
 public:
  RankOutput(OutputOptions options, int size);
  Status open_files();
  Status add_rank();  // the next number

  void name_host(Rank rank, std::string host);
  void feed(Rank rank, Stream stream, std::string_view bytes);
  void finish(Rank rank);  // both streams have ended
  void rest(Rank rank);    // its process has ended: its files are open only while its descendants write
  void tick(Nanos now);    // at least once a second
  void write_metrics(Rank rank, std::string_view text);  // rank-0003.prom, beside its logs
  void say(std::string_view text);                       // text of rueda itself, written to stderr unchanged
  void say_sentence(std::string_view sentence);          // a line of rueda itself
  // A line about the start: on a terminal it is rewritten in place, until something else is written there.
  void show_progress(const std::string& line);
  void end_progress();

  [[nodiscard]] std::vector<std::string> last_lines(Rank rank, Stream stream) const;
  [[nodiscard]] std::string log(Rank rank, Stream stream) const;  // path, "" = none

  [[nodiscard]] bool has_lost_logs() const { return has_lost_logs_; }
  [[nodiscard]] bool is_full() const { return out_.is_full() || err_.is_full(); }
  Console& out() { return out_; }
  Console& err() { return are_one_ ? out_ : err_; }  // one queue for what is one file, as with 2>&1

 private:
  struct LogFile {
    UniqueFd fd;
    std::string path;
    bool rests = false;
  };
  struct RankStream {
    LineAssembler assembler;
    LogFile log, output;
    Tail tail{20};
  };
  struct RankState {
    std::string host;
    std::array<RankStream, 2> streams;  // stdout, stderr
  };
  Status open_files_of(Rank rank);
  void write_fragment(Rank rank, Stream stream, const Fragment& fragment);
  void write_to(Console& console, std::string_view text);
  [[nodiscard]] LineTurns& turns_of(Stream stream) {
    return turns_[stream == Stream::kStdout || are_one_ ? 0 : 1];
  }
  [[nodiscard]] bool is_shown(Rank rank) const { return !options_.shown || options_.shown->contains(rank); }
  [[nodiscard]] size_t held_bytes() const;
  void relieve();
  void let_go(Rank rank, Stream stream);
  void break_off(LineTurns& turns, std::string_view why);
  void write_log(LogFile& log, std::string_view bytes);
  void lose_log(const std::string& why);
  void say_no_space(const std::string& why);
  static std::string log_path(const std::string& folder, Rank rank, std::string_view ending);
  [[nodiscard]] std::string output_path(Rank rank, Stream stream) const;

  OutputOptions options_;
  UniqueFd log_folder_;  // held
  std::vector<RankState> ranks_;
  size_t first_size_;  // of the job when it began
  bool are_one_;       // stdout and stderr are the same file
  Console out_, err_;
  std::array<LineTurns, 2> turns_;  // of out_ and err_
  size_t long_bytes_ = 0;           // of unfinished lines, without the first kShortLineBytes of each
  bool has_broken_line_ = false;    // the user is told once
  bool has_progress_ = false;       // such a line stands on the terminal
  bool has_lost_logs_ = false;      // the user is told once
  bool has_told_of_metrics_ = false;
};

}  // namespace rueda::launch
