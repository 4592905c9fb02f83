#include "rueda/runtime/links.h"

#include <poll.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace rueda::runtime {
namespace {

using control::FrameType;
using transport::Completion;
using transport::Ticket;

// The high byte of a ticket says whose it is; the native backend uses 0x01.
constexpr int kOwnerShift = 56;
enum class Owner : uint8_t { kSend = 2, kHeader = 3, kBody = 4 };

Ticket ticket_of(Owner owner, uint64_t value) { return (static_cast<Ticket>(owner) << kOwnerShift) | value; }
uint8_t owner_of(Ticket ticket) { return static_cast<uint8_t>(ticket >> kOwnerShift); }
Rank peer_of(Ticket ticket) { return static_cast<Rank>(ticket & 0xFFFFFFFFu); }

constexpr Nanos kInterruptCheck = 200 * kMillisecond;

}  // namespace

Links::Links(std::vector<std::unique_ptr<transport::Transport>> transports, Rank me,
             const std::vector<Facts>& all)
    : transports_(std::move(transports)), me_(me), all_(all), peers_(all.size()) {}

std::string Links::address_of(Rank peer, std::string_view transport) const {
  const Facts& facts = all_[static_cast<size_t>(peer)];
  return transport == "shm" ? facts.shm_address : facts.tcp_address;
}

Status Links::choose_transport(Rank peer) {
  const bool is_same_host =
      all_[static_cast<size_t>(peer)].host_key == all_[static_cast<size_t>(me_)].host_key;
  for (size_t t = 0; t < transports_.size(); ++t) {
    const std::string address = address_of(peer, transports_[t]->name());
    if (address.empty()) continue;
    if (transports_[t]->name() == "shm" && !is_same_host) continue;
    if (!transports_[t]->reaches(address)) continue;
    peers_[static_cast<size_t>(peer)].transport = t;
    if (Status s = transports_[t]->connect(peer, address, kDataLane); !s.is_ok()) return s;
    if (has_control_lane(peer)) {
      if (Status s = transports_[t]->connect(peer, address, kControlLane); !s.is_ok()) return s;
    }
    return Status::ok();
  }
  return {Code::kUnavailable, "no transport reaches " + describe(peer, all_[static_cast<size_t>(peer)]) +
                                  "; allow tcp with RUEDA_TRANSPORTS=shm,tcp."};
}

bool Links::adopt_endpoints() {
  bool is_complete = true;
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer) {
    if (peer == me_) continue;
    Peer& p = peers_[static_cast<size_t>(peer)];
    transport::Transport& t = *transports_[p.transport];
    if (p.data == nullptr) p.data = t.endpoint(peer, kDataLane);
    if (p.control == nullptr && has_control_lane(peer)) {
      p.control = t.endpoint(peer, kControlLane);
      if (p.control != nullptr) expect_header(peer);
    }
    is_complete = is_complete && p.data != nullptr && (p.control != nullptr || !has_control_lane(peer));
  }
  return is_complete;
}

std::string Links::missing_peers() const {
  std::string text;
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer) {
    const Peer& p = peers_[static_cast<size_t>(peer)];
    if (peer == me_ || (p.data != nullptr && (p.control != nullptr || !has_control_lane(peer)))) continue;
    if (!text.empty()) text += ", ";
    text += describe(peer, all_[static_cast<size_t>(peer)]) + " over " +
            std::string(transports_[p.transport]->name()) + " at " +
            address_of(peer, transports_[p.transport]->name());
  }
  return text;
}

Status Links::connect_all(Deadline deadline, const std::function<Status()>& interrupted) {
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer) {
    if (peer == me_) continue;
    if (Status s = choose_transport(peer); !s.is_ok()) return s;
  }
  Nanos next_check = monotonic_now() + kInterruptCheck;
  while (!adopt_endpoints()) {
    const bool moved = progress([](const Completion&) {});
    if (const std::vector<transport::Loss> losses = take_losses(); !losses.empty()) {
      const Rank peer = losses.front().peer;
      if (peer < 0) return losses.front().status;
      return {losses.front().status.code, "connecting to " + describe(peer, all_[static_cast<size_t>(peer)]) +
                                              " failed: " + losses.front().status.why};
    }
    const Nanos now = monotonic_now();
    if (deadline.is_past(now)) {
      return {Code::kTimeout, "no connection in time to " + missing_peers() +
                                  "; check firewalls and interfaces, or raise RUEDA_START_TIMEOUT."};
    }
    if (now >= next_check) {
      if (Status s = interrupted(); !s.is_ok()) return s;
      next_check = now + kInterruptCheck;
    }
    if (!moved) sleep(Deadline::at(std::min(deadline.when(), std::min(next_check, now + 20 * kMillisecond))));
  }
  return Status::ok();
}

transport::Endpoint* Links::data(Rank peer) const { return peers_[static_cast<size_t>(peer)].data; }

std::string_view Links::transport_name(Rank peer) const {
  return peer == me_ ? "self" : transports_[peers_[static_cast<size_t>(peer)].transport]->name();
}

void Links::send_frame(Rank peer, FrameType type, Bytes payload) {
  transport::Endpoint* lane = peers_[static_cast<size_t>(peer)].control;
  if (lane == nullptr) return;  // lost or never up: the loss is reported elsewhere
  const auto header = control::encode_header({.bytes = static_cast<uint32_t>(payload.size()), .type = type});
  const Ticket header_ticket = ticket_of(Owner::kSend, next_send_++);
  Bytes& owned_header = outgoing_[header_ticket] = Bytes(header.begin(), header.end());
  lane->send(header_ticket, owned_header);
  if (payload.empty()) return;
  const Ticket body_ticket = ticket_of(Owner::kSend, next_send_++);
  Bytes& owned_body = outgoing_[body_ticket] = std::move(payload);
  lane->send(body_ticket, owned_body);
}

void Links::broadcast_frame(FrameType type, const Bytes& payload) {
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer) {
    if (peer != me_) send_frame(peer, type, payload);
  }
}

void Links::put_back_frames(std::vector<Frame> frames) {
  frames_.insert(frames_.begin(), std::make_move_iterator(frames.begin()),
                 std::make_move_iterator(frames.end()));
}

void Links::expect_header(Rank peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  p.control->recv(ticket_of(Owner::kHeader, static_cast<uint64_t>(peer)), p.header);
}

void Links::on_control(const Completion& completion) {
  if (owner_of(completion.ticket) == static_cast<uint8_t>(Owner::kSend)) {
    outgoing_.erase(completion.ticket);
    return;
  }
  if (!completion.status.is_ok()) return;  // the loss of the lane is reported by the transport
  const Rank peer = peer_of(completion.ticket);
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (owner_of(completion.ticket) == static_cast<uint8_t>(Owner::kHeader)) {
    const Result<control::FrameHeader> header = control::decode_header(p.header);
    if (!header.is_ok()) {
      losses_.push_back({peer, kControlLane, header.status()});
      return;
    }
    p.parsed = header.value();
    if (p.parsed.bytes > 0) {
      p.body.resize(p.parsed.bytes);
      p.control->recv(ticket_of(Owner::kBody, static_cast<uint64_t>(peer)), p.body);
      return;
    }
    p.body.clear();
  }
  frames_.push_back({peer, p.parsed.type, std::exchange(p.body, {})});
  expect_header(peer);
}

bool Links::progress(const std::function<void(const Completion&)>& on_data) {
  bool moved = false;
  for (const auto& transport : transports_) {
    completions_.clear();
    moved = transport->progress(completions_) || moved;
    // on_control and on_data post new work on endpoints but never re-enter progress().
    for (const Completion& completion : completions_) {
      const uint8_t owner = owner_of(completion.ticket);
      const bool is_control =
          owner >= static_cast<uint8_t>(Owner::kSend) && owner <= static_cast<uint8_t>(Owner::kBody);
      is_control ? on_control(completion) : on_data(completion);
    }
  }
  return moved;
}

std::vector<transport::Loss> Links::take_losses() {
  for (const auto& transport : transports_) {
    for (transport::Loss& loss : transport->take_losses()) losses_.push_back(std::move(loss));
  }
  for (const transport::Loss& loss : losses_) {
    if (loss.peer >= 0 && loss.lane == kControlLane) peers_[static_cast<size_t>(loss.peer)].control = nullptr;
  }
  return std::exchange(losses_, {});
}

bool Links::prepare_sleep() {
  return std::ranges::all_of(transports_, [](const auto& transport) { return transport->prepare_sleep(); });
}

std::vector<int> Links::wake_fds() const {
  std::vector<int> fds;
  for (const auto& transport : transports_) transport->wake_fds(fds);
  return fds;
}

void Links::sleep(Deadline deadline) {
  if (prepare_sleep()) sleep_on(wake_fds(), deadline);
}

bool Links::is_all_shared_memory() const {
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer)
    if (peer != me_ && transport_name(peer) != "shm") return false;
  return true;
}

void sleep_on(std::span<const int> fds, Deadline deadline) {
  std::vector<pollfd> polled;
  polled.reserve(fds.size());
  for (const int fd : fds) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  // An interrupted or spurious return is harmless: the caller looks for work again.
  [[maybe_unused]] const int ready = ::poll(polled.data(), polled.size(), deadline.timeout_ms());
}

void Links::abort(const Status& why) {
  for (const auto& transport : transports_) transport->abort(why);
}

}  // namespace rueda::runtime
