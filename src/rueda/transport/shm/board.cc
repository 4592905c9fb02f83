#include "rueda/transport/shm/board.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "rueda/base/check.h"
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
Status fault_of(Rank peer, Receipt receipt) {
  switch (receipt) {
    case Receipt::kClosed:
      return closed_by(peer);
    case Receipt::kNoRoom:
      return out_of_descriptors(EMFILE);
    case Receipt::kGarbage:
      return not_shared(peer);
    case Receipt::kNothingYet:
    case Receipt::kReceived:
      return Status::ok();
  }
  return not_shared(peer);
}

}  // namespace

Board::Board(Rank me, Poller& poller, Outcome& outcome) : me_(me), poller_(poller), outcome_(outcome) {}

Board::~Board() { end(); }

void Board::begin(HostShare host) {
  host_ = std::move(host);
  RUEDA_CHECK(host_.counts.size() == ranks().size() && count_of(ranks().front()) > 0 &&
                  host_.mine.size() == count_of(me_),
              "ranks of a host know how many descriptors each of them gives");
  for (const Rank rank : ranks()) {
    if (rank == me_) continue;
    awaited_.push_back(rank);
    expected_ += count_of(rank);
  }
}

bool Board::is_of_host(Rank rank) const { return std::ranges::binary_search(ranks(), rank); }

size_t Board::count_of(Rank rank) const {
  const auto at = std::ranges::lower_bound(ranks(), rank);
  return host_.counts[static_cast<size_t>(at - ranks().begin())];
}

void Board::adopt(Rank peer, UniqueFd socket) {
  Member& member = members_[peer];
  if (member.socket.is_open()) return;  // a second connection is closed
  member.socket = std::move(socket);
  ++open_;
  if (const Status watched = poller_.add(member.socket.get(), member.watch); !watched.is_ok())
    return lose(peer, member, watched);
  member.watch.ready = EPOLLIN;
  if (peer > me_) return;
  if (!send_descriptors(member.socket.get(), kBoardMagic, host_.mine))
    lose(peer, member,
         peer_lost({peer, kBoardChannel},
                   "did not take what this rank shares (" + std::string(std::strerror(errno)) + ")"));
}

void Board::close(Member& member) {
  if (!member.socket.is_open()) return;
  poller_.remove(member.socket.get());
  member.socket.reset();
  --open_;
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
  if (ranks().empty() || open_ == 0) return false;
  for (auto& [peer, member] : members_) {
    if (!member.socket.is_open()) continue;
    const bool is_expected = is_leader() ? is_of_host(peer) : peer == ranks().front();
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

bool Board::has_work() const {
  return open_ > 0 && !ranks().empty() && std::ranges::any_of(members_, [](const auto& named) {
           return named.second.socket.is_open() && named.second.watch.ready != 0;
         });
}

bool Board::read_gift(Rank peer, Member& member) {
  if (member.watch.ready == 0) return false;
  ReceivedDescriptors received = receive_descriptors(member.socket.get(), kBoardMagic);
  if (received.state == Receipt::kNothingYet) return member.watch.ready = 0, false;
  Status fault = fault_of(peer, received.state);
  const bool is_awaited = std::ranges::find(awaited_, peer) != awaited_.end();
  if (fault.is_ok() && (!is_awaited || received.descriptors.size() != count_of(peer)))
    fault = not_shared(peer);
  if (!fault.is_ok()) return lose(peer, member, fault), true;
  member.given = std::move(received.descriptors);
  std::erase(awaited_, peer);
  return true;
}

// The kernel limits how many descriptors of a user are on their way. Then the rest goes when others have been
// taken, and this is tried again at the next look.
bool Board::pass_on(Rank peer, Member& member) {
  bool is_moved = false;
  while (member.told < ranks().size()) {
    std::vector<int> batch;
    size_t next = member.told;
    for (; next < ranks().size(); ++next) {
      const Rank giver = ranks()[next];
      if (giver == peer) continue;
      if (batch.size() + count_of(giver) > kMaxDescriptors) break;
      if (giver == me_)
        batch.insert(batch.end(), host_.mine.begin(), host_.mine.end());
      else
        for (const UniqueFd& fd : members_.at(giver).given) batch.push_back(fd.get());
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
    Status fault = fault_of(peer, received.state);
    const size_t more = received.descriptors.size();
    if (fault.is_ok() && (more == 0 || passed_.size() + more > expected_)) fault = not_shared(peer);
    if (!fault.is_ok()) return lose(peer, member, fault), true;
    for (UniqueFd& fd : received.descriptors) passed_.push_back(std::move(fd));
    is_moved = true;
    if (passed_.size() < expected_) continue;
    sort_out();
    close(member);
  }
  return is_moved;
}

void Board::sort_out() {
  size_t next = 0;
  for (const Rank rank : awaited_)
    for (size_t i = 0; i < count_of(rank); ++i) members_[rank].given.push_back(std::move(passed_[next++]));
  passed_.clear();
  awaited_.clear();
}

std::vector<Rank> Board::missing() const {
  if (awaited_.empty()) {
    std::vector<Rank> untold;  // leader
    for (const auto& [peer, member] : members_)
      if (member.socket.is_open()) untold.push_back(peer);
    return untold;
  }
  return is_leader() ? awaited_ : std::vector<Rank>{ranks().front()};
}

std::vector<UniqueFd> Board::take(Rank peer) {
  const auto found = members_.find(peer);
  return found == members_.end() ? std::vector<UniqueFd>() : std::exchange(found->second.given, {});
}

}  // namespace rueda::transport
