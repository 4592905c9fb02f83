#include "rueda/transport/shm/board.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "rueda/base/descriptors.h"
#include "rueda/base/socket.h"
#include "rueda/transport/message.h"
#include "rueda/transport/shm/descriptors.h"

namespace rueda::transport {
namespace {

constexpr uint32_t kBoardMagic = 0x42445552;  // "RUDB"
using Receipt = ReceivedDescriptors::Receipt;

Status closed_by(Rank peer) { return peer_lost({peer, kBoardChannel}, "closed its connection"); }

Status not_shared(Rank peer) {
  return {Code::kInternal,
          to_string(ChannelName{peer, kBoardChannel}) + " sent something other than what it shares."};
}

// What is wrong with a message that should carry descriptors; ok where nothing is, or none has come.
Status fault_of(Rank peer, const ReceivedDescriptors& received, size_t unit) {
  const size_t count = received.descriptors.size();
  switch (received.state) {
    case Receipt::kNothingYet:
      return Status::ok();
    case Receipt::kClosed:
      return closed_by(peer);
    case Receipt::kNoRoom:
      return out_of_descriptors(EMFILE);
    case Receipt::kGarbage:
      return not_shared(peer);
    case Receipt::kReceived:
      return count == 0 || count % unit != 0 ? not_shared(peer) : Status::ok();
  }
  return not_shared(peer);
}

}  // namespace

Board::Board(Rank me, std::vector<int> mine, Poller& poller, Outcome& outcome)
    : me_(me), mine_(std::move(mine)), poller_(poller), outcome_(outcome) {}

Board::~Board() { end(); }

void Board::begin(std::span<const Rank> ranks) {
  ranks_.assign(ranks.begin(), ranks.end());
  for (const Rank rank : ranks_)
    if (rank != me_) awaited_.push_back(rank);
  if (mine_.empty()) awaited_.clear();
}

bool Board::is_of_host(Rank rank) const { return std::ranges::binary_search(ranks_, rank); }

void Board::adopt(Rank peer, UniqueFd socket) {
  Member& member = members_[peer];
  if (member.socket.is_open()) return;  // a second connection is closed
  member.socket = std::move(socket);
  if (const Status watched = poller_.add(member.socket.get(), member.watch); !watched.is_ok())
    return lose(peer, member, watched);
  member.watch.ready = EPOLLIN;
  if (peer > me_) return;
  if (!send_descriptors(member.socket.get(), kBoardMagic, mine_))
    lose(peer, member,
         peer_lost({peer, kBoardChannel},
                   "did not take what this rank shares (" + std::string(std::strerror(errno)) + ")"));
}

void Board::close(Member& member) {
  if (member.socket.is_open()) poller_.remove(member.socket.get());
  member.socket.reset();
  member.watch.ready = 0;
}

void Board::lose(Rank peer, Member& member, const Status& why) {
  close(member);
  outcome_.losses.push_back({peer, kBoardChannel, why});
}

void Board::end() {
  for (auto& [peer, member] : members_) close(member);
}

bool Board::progress() {
  bool is_moved = false;
  if (ranks_.empty()) return false;
  for (auto& [peer, member] : members_) {
    if (!member.socket.is_open()) continue;
    const bool is_expected = is_leader() ? is_of_host(peer) : peer == ranks_.front();
    if (!is_expected)
      close(member);
    else
      is_moved |= is_leader() ? read_gift(peer, member) : read_all(peer, member);
  }
  if (!is_leader() || !awaited_.empty()) return is_moved;
  for (auto& [peer, member] : members_)
    if (member.socket.is_open()) is_moved |= pass_on(peer, member);
  return is_moved;
}

bool Board::is_over() const {
  return awaited_.empty() &&
         std::ranges::none_of(members_, [](const auto& named) { return named.second.socket.is_open(); });
}

bool Board::has_work() const {
  return !ranks_.empty() && std::ranges::any_of(members_, [](const auto& named) {
    return named.second.socket.is_open() && named.second.watch.ready != 0;
  });
}

bool Board::read_gift(Rank peer, Member& member) {
  if (member.watch.ready == 0) return false;
  ReceivedDescriptors received = receive_descriptors(member.socket.get(), kBoardMagic);
  if (received.state == Receipt::kNothingYet) return member.watch.ready = 0, false;
  Status fault = fault_of(peer, received, mine_.size());
  const bool is_gift = member.given.empty() && received.descriptors.size() == mine_.size();
  if (fault.is_ok() && !is_gift) fault = not_shared(peer);
  if (!fault.is_ok()) return lose(peer, member, fault), true;
  member.given = std::move(received.descriptors);
  std::erase(awaited_, peer);
  return true;
}

// The kernel limits how many descriptors of a user are on their way. Then the rest goes when others have been
// taken, and this is tried again at the next look.
bool Board::pass_on(Rank peer, Member& member) {
  const size_t most = kMaxDescriptors / mine_.size();
  bool is_moved = false;
  while (member.told < ranks_.size()) {
    std::vector<int> batch;
    size_t next = member.told;
    for (size_t taken = 0; next < ranks_.size() && taken < most; ++next) {
      if (ranks_[next] == peer) continue;
      ++taken;
      if (ranks_[next] == me_)
        batch.insert(batch.end(), mine_.begin(), mine_.end());
      else
        for (const UniqueFd& fd : members_.at(ranks_[next]).given) batch.push_back(fd.get());
    }
    if (!batch.empty() && !send_descriptors(member.socket.get(), kBoardMagic, batch)) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS) return is_moved;
      return lose(peer, member, closed_by(peer)), true;
    }
    member.told = next;
    is_moved = true;
  }
  close(member);  // what is on its way still arrives
  return true;
}

bool Board::read_all(Rank peer, Member& member) {
  bool is_moved = false;
  while (member.socket.is_open() && member.watch.ready != 0) {
    ReceivedDescriptors received = receive_descriptors(member.socket.get(), kBoardMagic);
    if (received.state == Receipt::kNothingYet) return member.watch.ready = 0, is_moved;
    Status fault = fault_of(peer, received, mine_.size());
    if (fault.is_ok() && received.descriptors.size() > awaited_.size() * mine_.size())
      fault = not_shared(peer);
    if (!fault.is_ok()) return lose(peer, member, fault), true;
    const size_t count = received.descriptors.size() / mine_.size();
    for (size_t i = 0; i < count; ++i) {
      std::vector<UniqueFd>& given = members_[awaited_[i]].given;
      for (size_t k = 0; k < mine_.size(); ++k)
        given.push_back(std::move(received.descriptors[i * mine_.size() + k]));
    }
    awaited_.erase(awaited_.begin(), awaited_.begin() + static_cast<ptrdiff_t>(count));
    is_moved = true;
    if (awaited_.empty()) close(member);
  }
  return is_moved;
}

std::vector<Rank> Board::missing() const {
  if (awaited_.empty()) {
    std::vector<Rank> untold;  // leader
    for (const auto& [peer, member] : members_)
      if (member.socket.is_open()) untold.push_back(peer);
    return untold;
  }
  return is_leader() ? awaited_ : std::vector<Rank>{ranks_.front()};
}

std::vector<UniqueFd> Board::take(Rank peer) {
  const auto found = members_.find(peer);
  return found == members_.end() ? std::vector<UniqueFd>() : std::exchange(found->second.given, {});
}

}  // namespace rueda::transport
