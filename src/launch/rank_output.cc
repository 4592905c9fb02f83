#include "launch/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "launch/earlier_logs.h"
#include "rueda/base/check.h"
#include "rueda/status/textfile.h"

namespace rueda::launch {
namespace {

// Of one unfinished line, if its console is free, and of all ranks; without the first kShortLineBytes of
// each.
constexpr size_t kMaxLineBytes = 16 << 20, kMaxHeldBytes = 128 << 20;

size_t long_part(const LineAssembler& line) {
  return line.kept_bytes() - std::min(line.kept_bytes(), kShortLineBytes);
}

bool is_same_file(int one, int other) {
  struct stat a {
  }, b{};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string_view ending_of(Stream stream) { return stream == Stream::kStdout ? "out" : "err"; }

size_t index_of(Stream stream) { return stream == Stream::kStdout ? 0 : 1; }

std::string local_time(PrefixStyle::Kind kind) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  std::array<char, 64> text{};
  if (kind == PrefixStyle::Kind::kHorovod) {
    strftime(text.data(), text.size(), "%a %b %e %H:%M:%S %Y", &local);  // time.asctime of Python
    return text.data();
  }
  strftime(text.data(), text.size(), "%H:%M:%S", &local);
  return fmt::format("{}.{:03}", text.data(), now.tv_nsec / 1'000'000);
}

// how: O_TRUNC for a new one.
Result<UniqueFd> open_log(const std::string& path, int how) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | how, 0644));
  if (!fd.is_open())
    return Status(Code::kUnavailable, fmt::format("cannot write the log {}: {}", path, std::strerror(errno)));
  return fd;
}

}  // namespace

RankOutput::RankOutput(OutputOptions options, int size)
    : options_(std::move(options)),
      ranks_(static_cast<size_t>(size)),
      first_size_(ranks_.size()),
      are_one_(is_same_file(STDOUT_FILENO, STDERR_FILENO)),  // before a console opens what may become stdout
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {
  const char* no_colour = getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') options_.may_colour = false;
  if (options_.style.kind != PrefixStyle::Kind::kNone) return;
  turns_.fill(LineTurns(true));
  for (RankState& rank : ranks_)
    for (RankStream& stream : rank.streams) stream.assembler = LineAssembler(true);
}

Status RankOutput::open_files() {
  if (!options_.log_dir.empty()) {
    Result<UniqueFd> held = hold_log_folder(options_.log_dir);
    if (!held.is_ok()) return held.status();
    log_folder_ = std::move(held.value());
    const Result<std::string> moved = set_aside_logs(options_.log_dir);
    if (!moved.is_ok()) return moved.status();
    if (!moved.value().empty())
      say_sentence(
          fmt::format("the logs of an earlier job in {} are now in {}", options_.log_dir, moved.value()));
  }
  for (Rank rank = 0; rank < std::ssize(ranks_); ++rank)
    if (Status opened = open_files_of(rank); !opened.is_ok()) return opened;
  return Status::ok();
}

Status RankOutput::open_files_of(Rank rank) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    RankStream& state = ranks_[static_cast<size_t>(rank)].streams[index_of(stream)];
    state.log.path = log_path(options_.log_dir, rank, ending_of(stream));
    state.output.path = output_path(rank, stream);
    for (LogFile* log : {&state.log, &state.output}) {
      if (log->path.empty()) continue;
      Result<UniqueFd> file = open_log(log->path, O_TRUNC);
      if (!file.is_ok()) return file.status();
      log->fd = std::move(file.value());
    }
  }
  return Status::ok();
}

Status RankOutput::add_rank() {
  RankState& state = ranks_.emplace_back();
  if (options_.style.kind == PrefixStyle::Kind::kNone)
    for (RankStream& stream : state.streams) stream.assembler = LineAssembler(true);
  return open_files_of(static_cast<Rank>(ranks_.size()) - 1);
}

std::string RankOutput::log_path(const std::string& folder, Rank rank, std::string_view ending) {
  if (folder.empty()) return {};
  return fmt::format("{}/rank-{:04}.{}", folder, rank, ending);
}

std::string RankOutput::output_path(Rank rank, Stream stream) const {
  if (options_.output_dir.empty()) return {};
  const size_t width = std::to_string(first_size_ - 1).size();
  return fmt::format("{}/rank.{:0{}}/{}", options_.output_dir, rank, width,
                     stream == Stream::kStdout ? "stdout" : "stderr");
}

void RankOutput::name_host(Rank rank, std::string host) {
  ranks_[static_cast<size_t>(rank)].host = std::move(host);
}

void RankOutput::feed(Rank rank, Stream stream, std::string_view bytes) {
  RankStream& state = ranks_[static_cast<size_t>(rank)].streams[index_of(stream)];
  write_log(state.log, bytes);
  long_bytes_ -= long_part(state.assembler);
  state.assembler.feed(bytes, [&](const Fragment& fragment) { write_fragment(rank, stream, fragment); });
  long_bytes_ += long_part(state.assembler);
  if (long_part(state.assembler) > kMaxLineBytes && !(is_shown(rank) && turns_of(stream).holder()))
    let_go(rank, stream);
  if (held_bytes() > kMaxHeldBytes) relieve();
}

void RankOutput::finish(Rank rank) {
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    LineAssembler& line = ranks_[static_cast<size_t>(rank)].streams[index_of(stream)].assembler;
    long_bytes_ -= long_part(line);
    line.finish([&](const Fragment& fragment) { write_fragment(rank, stream, fragment); });
  }
}

// An elastic job may start any number of processes.
void RankOutput::rest(Rank rank) {
  for (RankStream& stream : ranks_[static_cast<size_t>(rank)].streams)
    for (LogFile* log : {&stream.log, &stream.output}) {
      log->rests = log->fd.is_open();
      log->fd = UniqueFd();
    }
}

size_t RankOutput::held_bytes() const {
  return long_bytes_ + turns_[0].waiting_bytes() + turns_[1].waiting_bytes();
}

// Too much is held. The longest unfinished line begins to be written, if no other one is under way on its
// console; otherwise that one is broken off.
void RankOutput::relieve() {
  while (held_bytes() > kMaxHeldBytes) {
    LineTurns::Speaker longest{0, Stream::kStdout};
    size_t most = 0;
    for (Rank rank = 0; rank < std::ssize(ranks_); ++rank)
      for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
        const size_t own = long_part(ranks_[static_cast<size_t>(rank)].streams[index_of(stream)].assembler);
        if (own > most) longest = {rank, stream};
        most = std::max(most, own);
      }
    const auto& [rank, stream] = longest;
    LineTurns& waited_for = turns_[turns_[0].waiting_bytes() >= turns_[1].waiting_bytes() ? 0 : 1];
    LineTurns& turns = most > 0 ? turns_of(stream) : waited_for;
    if ((most == 0 || is_shown(rank)) && turns.holder())
      break_off(turns, "the unfinished lines and what waits for them take too much memory");
    if (most == 0) return;
    let_go(rank, stream);
  }
}

void RankOutput::let_go(Rank rank, Stream stream) {
  LineAssembler& line = ranks_[static_cast<size_t>(rank)].streams[index_of(stream)].assembler;
  long_bytes_ -= long_part(line);
  line.let_go([&](const Fragment& fragment) { write_fragment(rank, stream, fragment); });
}

void RankOutput::tick(Nanos now) {
  for (LineTurns& turns : turns_)
    if (turns.is_overdue(now))
      break_off(turns, fmt::format("it had not ended {} s after its beginning", kLongestTurn / kSecond));
}

void RankOutput::break_off(LineTurns& turns, std::string_view why) {
  const auto [rank, stream] = turns.holder().value();
  ranks_[static_cast<size_t>(rank)].streams[index_of(stream)].assembler.keep();
  write_to(&turns == &turns_of(Stream::kStdout) ? out_ : err_, turns.break_off());
  if (!std::exchange(has_broken_line_, true))
    say(
        fmt::format("rueda: a line of rank {} was broken so that those of other ranks can follow: {}; "
                    "--log-dir keeps it whole\n",
                    rank, why));
}

void RankOutput::write_fragment(Rank rank, Stream stream, const Fragment& fragment) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  RankStream& own = state.streams[index_of(stream)];
  own.tail.add(fragment);
  PrefixStyle style = options_.style;
  const std::string time = style.has_time ? local_time(style.kind) : std::string();
  if (own.output.fd.is_open()) {
    std::string text;
    if (!fragment.is_continuation) text = line_prefix(style, rank, state.host, stream, time);
    write_log(own.output, text.append(fragment.text).append(fragment.end));
  }
  if (!is_shown(rank)) return;
  Console& console = stream == Stream::kStdout ? out_ : err();
  style.is_coloured = options_.may_colour && console.is_tty();
  const std::string prefix = line_prefix(style, rank, state.host, stream, time);
  write_to(console, turns_of(stream).add({rank, stream}, fragment, prefix, monotonic_now()));
}

void RankOutput::show_progress(const std::string& line) {
  if (!err().is_tty()) return say_sentence(line);
  if (turns_of(Stream::kStderr).holder()) return;  // the cursor stands in its line
  end_progress();
  const size_t width = err().columns();  // a longer line could not be removed again
  err().write(("rueda: " + line).substr(0, width > 1 ? width - 1 : std::string::npos));
  has_progress_ = true;
}

void RankOutput::end_progress() {
  if (!std::exchange(has_progress_, false)) return;
  err().write("\r\x1b[K");
  err().flush();  // before anything else reaches the terminal through stdout
}

void RankOutput::write_to(Console& console, std::string_view text) {
  if (text.empty()) return;
  end_progress();
  console.write(text);
}

void RankOutput::write_log(LogFile& log, std::string_view bytes) {
  UniqueFd again;
  if (log.rests && !bytes.empty()) {
    Result<UniqueFd> opened = open_log(log.path, 0);
    if (!opened.is_ok()) return lose_log(opened.status().why);
    again = std::move(opened.value());
  }
  const int fd = log.rests ? again.get() : log.fd.get();
  if (fd < 0) return;
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return lose_log(fmt::format("cannot write the log {}: {}", log.path, std::strerror(errno)));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void RankOutput::lose_log(const std::string& why) {
  if (!std::exchange(has_lost_logs_, true)) say_no_space(why);
}

void RankOutput::say_no_space(const std::string& why) {
  say_sentence(why + "; free space there or name another directory");
}

// The next ones replace them, so nothing is lost for good.
void RankOutput::write_metrics(Rank rank, std::string_view text) {
  const Status written = status::replace_file(log_path(options_.log_dir, rank, "prom"), text);
  if (!written.is_ok() && !std::exchange(has_told_of_metrics_, true)) say_no_space(written.why);
}

void RankOutput::say(std::string_view text) { write_to(err(), turns_of(Stream::kStderr).add_text(text)); }

void RankOutput::say_sentence(std::string_view sentence) { say(fmt::format("rueda: {}\n", sentence)); }

std::vector<std::string> RankOutput::last_lines(Rank rank, Stream stream) const {
  return ranks_[static_cast<size_t>(rank)].streams[index_of(stream)].tail.lines();
}

std::string RankOutput::log(Rank rank, Stream stream) const {
  if (options_.log_dir.empty()) return output_path(rank, stream);
  return log_path(options_.log_url.empty() ? options_.log_dir : options_.log_url, rank, ending_of(stream));
}

}  // namespace rueda::launch
