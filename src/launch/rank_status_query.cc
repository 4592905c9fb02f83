#include "launch/rank_status_query.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rueda/base/process.h"
#include "rueda/status/folder.h"

namespace rueda::launch {
namespace {

std::string why_silent(const RankHere& rank) {
  if (rank.has_ended) return "it has ended";
  if (rank.pid == 0) return "it has not been started yet";
  return "it has not called init yet, or RUEDA_STATUS is 0 there";
}

}  // namespace

RankStatusQuery::RankStatusQuery(Question question, const std::string& folder,
                                 std::span<const RankHere> ranks, Nanos now)
    : question_(std::move(question)), until_(now + question_.text.timeout_ms * kMillisecond) {
  std::vector<std::pair<std::string, int>> sockets;  // and who listens
  for (const std::string& socket : status::sockets_in(folder))
    sockets.emplace_back(socket, status::pid_behind(socket));
  for (const RankHere& rank : ranks) {
    if (question_.text.rank >= 0 && rank.rank != question_.text.rank) continue;
    const size_t before = asked_.size();
    if (rank.pid != 0 && !rank.has_ended)
      for (const auto& [socket, pid] : sockets)
        if (is_or_descends_from(pid, rank.pid)) ask(socket, pid, rank.rank);
    if (asked_.size() == before)
      asked_.push_back({.answer = {.rank = rank.rank, .pid = rank.pid, .missing = why_silent(rank)}});
  }
}

void RankStatusQuery::ask(const std::string& socket, int pid, int32_t rank) {
  Asked& asked = asked_.emplace_back();
  asked.answer = {.rank = rank, .pid = pid};
  Result<UniqueFd> fd = status::begin_to_ask(socket, question_.text.what);
  if (fd.is_ok())
    asked.fd = std::move(fd).value();
  else
    asked.answer.missing = fd.status().why;
}

void RankStatusQuery::watch(PollSet& set) {
  for (Asked& asked : asked_)
    if (asked.fd.is_open()) set.watch(asked.fd.get(), POLLIN, [this, &asked] { read_from(asked); });
}

// One piece a turn, so that the output of ranks is passed on meanwhile.
void RankStatusQuery::read_from(Asked& asked) {
  std::array<char, 64 << 10> piece;
  const ssize_t size = recv(asked.fd.get(), piece.data(), piece.size(), 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0) {
    bytes_ += static_cast<size_t>(size);
    asked.answer.text.append(piece.data(), static_cast<size_t>(size));
    if (bytes_ <= status::kMaxHostReply) return;
  }
  if (size < 0) asked.answer.missing = fmt::format("its answer broke off: {}", std::strerror(errno));
  if (size == 0 && asked.answer.text.empty()) asked.answer.missing = "it has hung up";
  if (size > 0)
    asked.answer.missing =
        fmt::format("the ranks of its host answered with more than {} MiB", status::kMaxHostReply >> 20);
  if (!asked.answer.missing.empty()) bytes_ -= std::exchange(asked.answer.text, {}).size();
  asked.fd.reset();
}

bool RankStatusQuery::is_done(Nanos now) const {
  return now >= until_ || std::ranges::none_of(asked_, [](const Asked& one) { return one.fd.is_open(); });
}

Bytes RankStatusQuery::answer() const {
  std::vector<status::ProcessAnswer> answers;
  for (const Asked& asked : asked_) {
    answers.push_back(asked.answer);
    if (!asked.fd.is_open()) continue;
    answers.back().text.clear();
    const int pid = asked.answer.pid;
    answers.back().missing =
        fmt::format("process {} did not answer within {} ms; {}", pid, question_.text.timeout_ms,
                    why_no_answer(look_at_process(pid, 0).state, pid));
  }
  ByteWriter writer;
  writer.put(question_.id);
  writer.put_raw(status::encode(answers));
  return std::move(writer).take();
}

}  // namespace rueda::launch
