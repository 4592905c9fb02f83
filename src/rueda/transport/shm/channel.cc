#include "rueda/transport/shm/channel.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rueda/base/descriptors.h"
#include "rueda/base/socket.h"
#include "rueda/transport/shm/descriptors.h"

namespace rueda::transport {
namespace {

constexpr size_t kPieceBytes =
    64 << 10;  // published at a time, so that a large message flows while it is copied
constexpr size_t kInlineBytes =
    kLine - sizeof(MessageHeader);  // a payload up to this size shares the line of the header
constexpr int kRounds = 8;
constexpr uint32_t kMemoryMagic = 0x4d445552;  // "RUDM"; sent with the memory

// Copied before it is used, because the peer could change it in between.
std::string name_in(const RingMapping::End& end) {
  std::array<char, Doorbell::kMaxNameBytes> name;
  std::memcpy(name.data(), end.doorbell, name.size());
  return {name.begin(), std::ranges::find(name, '\0')};
}

}  // namespace

ShmChannel::ShmChannel(ChannelName name, UniqueFd socket, Surroundings around)
    : name_(name), socket_(std::move(socket)), around_(around), requests_(around.outcome) {
  // Not EPOLLOUT: when the peer reads our doorbell, the free room would wake us.
  const Status status = around_.poller.add(socket_.get(), watch_, EPOLLIN | EPOLLRDHUP);
  if (!status.is_ok()) {
    lose(status);
    return;
  }
  watch_.ready = EPOLLIN;
  see_process();
}

ShmChannel::~ShmChannel() { leave(); }

// If a rank is killed, its forked data loaders hold its socket open. Then only its process tells that
// it is gone.
void ShmChannel::see_process() {
  const ucred peer = peer_process(socket_.get());
  if (peer.uid == static_cast<uid_t>(-1)) return;
  if (const Status seen = around_.processes.see(name_.peer, peer.pid); !seen.is_ok()) lose(seen);
}

void ShmChannel::offer_memory(size_t ring_bytes) {
  if (requests_.is_ended()) return;
  Result<RingMapping> mapping = RingMapping::create(ring_bytes);
  if (!mapping.is_ok()) return lose(mapping.status());
  const int memory = mapping.value().fd();
  if (!send_descriptors(socket_.get(), kMemoryMagic, std::span(&memory, 1)))
    return lose(
        peer_lost(name_, "did not take the shared memory (" + std::string(std::strerror(errno)) + ")"));
  begin(std::move(mapping).value(), true);
}

// The first message on the socket: the accepting end passes the rings.
void ShmChannel::adopt_memory() {
  using Receipt = ReceivedDescriptors::Receipt;
  ReceivedDescriptors received = receive_descriptors(socket_.get(), kMemoryMagic);
  if (received.state == Receipt::kNothingYet) return;
  if (received.state == Receipt::kClosed) return lose(peer_lost(name_, "closed its connection"));
  if (received.state == Receipt::kNoRoom) return lose(out_of_descriptors(EMFILE));
  if (received.state == Receipt::kGarbage || received.descriptors.size() != 1)
    return lose({Code::kInternal, to_string(name_) + " sent something other than its shared memory."});
  Result<RingMapping> mapping = RingMapping::adopt(std::move(received.descriptors.front()));
  if (!mapping.is_ok()) return lose(mapping.status());
  begin(std::move(mapping).value(), false);
}

void ShmChannel::begin(RingMapping mapping, bool is_creator) {
  mapping_ = std::move(mapping);
  mapping_.close_fd();
  my_place_ = is_creator ? 0 : 1;
  const int out = my_place_, in = 1 - out;
  std::ranges::copy(around_.doorbell.name(), my_end().doorbell);
  RingMapping::Control& control = mapping_.control();
  writer_ = RingWriter(control.rings[out], mapping_.ring(out));
  reader_ = RingReader(control.rings[in], mapping_.ring(in));
  my_sleep_ = &control.sleeps[out].interest;
  peer_sleep_ = &control.sleeps[in].interest;
  is_up_ = true;
}

void ShmChannel::send(Ticket ticket, std::span<const std::byte> bytes) {
  requests_.post(SendRequest{ticket, bytes});
  become_busy();
}

void ShmChannel::recv(Ticket ticket, std::span<std::byte> bytes) {
  requests_.post(RecvRequest{.ticket = ticket, .into = bytes.data(), .bytes = bytes.size()});
  become_busy();
}

void ShmChannel::recv_into(Ticket ticket, size_t bytes, size_t unit_bytes, Consumer& consumer) {
  requests_.post(
      RecvRequest{.ticket = ticket, .bytes = bytes, .unit_bytes = unit_bytes, .consumer = &consumer});
  become_busy();
}

void ShmChannel::become_busy() {
  if (std::exchange(is_busy_, true)) return;
  around_.busy.push_back(this);
}

bool ShmChannel::stays_busy() {
  is_busy_ = !requests_.is_ended() && (is_hung_up_ || !requests_.sends.empty() || !requests_.recvs.empty());
  return is_busy_;
}

bool ShmChannel::progress() {
  if (!is_up_ || requests_.is_ended()) return false;
  bool is_moved = false;
  for (int round = 0; round < kRounds; ++round) {
    const bool is_sent = send_some();
    const bool is_received = recv_some();
    if (!is_sent && !is_received) break;
    is_moved = true;
  }
  lose_if_broken();
  if (!is_moved && is_at_end()) lose(peer_lost(name_, "closed its connection"));
  return is_moved;
}

// Whether the peer is gone and nothing is left that somebody may still receive. What it wrote before it went
// is kept for receives that may come; a send, or a receive for more, ends the channel.
bool ShmChannel::is_at_end() {
  return is_hung_up_ && (!requests_.sends.empty() || !requests_.recvs.empty() || reader_.available(1) == 0);
}

bool ShmChannel::send_some() {
  size_t put = 0;
  while (!requests_.sends.empty() && put < kPieceBytes && !is_hung_up_) {
    const std::span<const std::byte> bytes = requests_.sends.front().bytes;
    const size_t room = writer_.room(kLine);
    if (room < kLine || writer_.is_broken()) break;
    size_t step = kLine;
    if (!is_header_sent_) {
      std::array<std::byte, kLine> line;
      const MessageHeader header{.sequence = send_sequence_, .bytes = bytes.size()};
      std::memcpy(line.data(), &header, sizeof(header));
      const size_t used = bytes.size() <= kInlineBytes ? bytes.size() : 0;
      if (used > 0) std::memcpy(line.data() + sizeof(header), bytes.data(), used);
      writer_.put(std::span(line).first(sizeof(header) + used));
      sent_bytes_ = used;
      is_header_sent_ = true;
    } else {
      step = std::min({writer_.room(kPieceBytes), bytes.size() - sent_bytes_, kPieceBytes});
      writer_.put(bytes.subspan(sent_bytes_, step));
      sent_bytes_ += step;
    }
    put += step;
    if (sent_bytes_ < bytes.size()) continue;
    is_header_sent_ = false;
    ++send_sequence_;
    requests_.finish_send();
  }
  if (put == 0) return false;
  publish_sent();
  return true;
}

bool ShmChannel::recv_some() {
  size_t taken = 0;
  while (!requests_.recvs.empty() && taken < kPieceBytes) {
    if (reader_.available(kLine) < kLine || reader_.is_broken()) break;
    const size_t bytes = requests_.recvs.front().bytes;
    if (!is_header_taken_) {
      if (!take_header()) return taken > 0;
      taken += kLine;
    } else {
      reader_.available(kPieceBytes);
      const auto piece = reader_.peek(std::min(bytes - received_bytes_, kPieceBytes));
      received_bytes_ += piece.size();
      reassembly_.deliver(requests_.recvs.front(), received_bytes_, piece);
      reader_.skip(piece.size());
      taken += piece.size();
    }
    if (received_bytes_ == bytes) finish_message();
  }
  if (taken == 0) return false;
  publish_received();
  return true;
}

bool ShmChannel::take_header() {
  // Copied before it is checked, because the peer could change it in between.
  std::array<std::byte, kLine> line;
  std::memcpy(line.data(), reader_.peek(kLine).data(), kLine);
  MessageHeader header;
  std::memcpy(&header, line.data(), sizeof(header));
  const RecvRequest& request = requests_.recvs.front();
  if (Status status = check_header(header, recv_sequence_, request.bytes, name_); !status.is_ok())
    return lose(status), false;
  is_header_taken_ = true;
  received_bytes_ = request.bytes <= kInlineBytes ? request.bytes : 0;
  reassembly_.deliver(request, received_bytes_, std::span(line).subspan(sizeof(header), received_bytes_));
  reader_.skip(kLine);
  return true;
}

void ShmChannel::finish_message() {
  RUEDA_CHECK(reassembly_.size() == 0, "a message ended within a unit");
  is_header_taken_ = false;
  received_bytes_ = 0;
  ++recv_sequence_;
  requests_.finish_recv();
}

void ShmChannel::publish_sent() {
  writer_.publish();
  ring_doorbell(kWantsData);
}

void ShmChannel::publish_received() {
  reader_.publish();
  ring_doorbell(kWantsRoom);
}

void ShmChannel::ring_doorbell(uint32_t interest) {
  if ((load_shared(*peer_sleep_) & interest) == 0) return;
  std::atomic_ref<uint32_t>(*peer_sleep_).store(0, std::memory_order_relaxed);  // one ring is enough
  const std::byte doorbell{1};
  // A full socket holds doorbells that the peer has not read yet. If the peer is gone, others report it.
  const bool is_sent =
      socket_.is_open() && (::send(socket_.get(), &doorbell, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ||
                            errno == EAGAIN || errno == EWOULDBLOCK);
  if (!is_sent) around_.doorbell.ring(name_in(peer_end()));
}

bool ShmChannel::has_ring_work() {
  return (!requests_.recvs.empty() && reader_.available(kLine) > 0) ||
         (!requests_.sends.empty() && writer_.room(kLine) > 0);
}

bool ShmChannel::fall_asleep() {
  if (requests_.is_ended()) return true;
  if (watch_.ready != 0) return false;
  if (!is_up_) return true;
  if (is_at_end()) return false;
  const uint32_t interest =
      (requests_.recvs.empty() ? 0 : kWantsData) | (requests_.sends.empty() ? 0 : kWantsRoom);
  store_shared(*my_sleep_, interest);
  return !has_ring_work();
}

void ShmChannel::wake_up() {
  if (is_up_ && !requests_.is_ended())
    std::atomic_ref<uint32_t>(*my_sleep_).store(0, std::memory_order_relaxed);
}

void ShmChannel::on_socket() {
  if (requests_.is_ended() || watch_.ready == 0) return;
  if (watch_.has(EPOLLIN) && !is_up_) adopt_memory();
  if (requests_.is_ended()) return;
  bool is_closed = watch_.has(kHangup);
  // Bounded. Unread doorbells may remain: the next doorbell, or the end of the socket, makes a new event.
  std::array<std::byte, 256> doorbells;
  for (int i = 0; i < kRounds && is_up_ && watch_.has(EPOLLIN); ++i) {
    const ssize_t got = ::recv(socket_.get(), doorbells.data(), doorbells.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) is_closed = true;
    if (got < static_cast<ssize_t>(doorbells.size())) break;
  }
  watch_.ready = 0;
  if (is_closed) on_hangup();
  if (!is_closed) let_go();
}

void ShmChannel::on_hangup() {
  if (!is_up_) return lose(peer_lost(name_, "closed its connection"));
  const bool is_agreed = says_no_socket_ && (load_shared(peer_end().state) & kHasLetGo) != 0;
  if (!is_agreed) return hang_up();
  close_socket();
  look_at_peer();
}

// Each end says that it needs no socket, then reads what the other says, so that one of them sees both. What
// rings on the socket is not lost with it: an end is awake when it closes it, and looks at the rings before
// it sleeps.
void ShmChannel::let_go() {
  if (!is_up_ || keeps_socket_ || !socket_.is_open() || requests_.is_ended()) return;
  if (!says_no_socket_ && around_.processes.watches(name_.peer)) {
    says_no_socket_ = true;
    std::atomic_ref<uint32_t>(my_end().state).fetch_or(kNeedsNoSocket);
  }
  if (!says_no_socket_ || (load_shared(peer_end().state) & kNeedsNoSocket) == 0) return;
  keeps_socket_ = !around_.doorbell.ring(name_in(peer_end()));
  if (keeps_socket_) return;
  std::atomic_ref<uint32_t>(my_end().state).fetch_or(kHasLetGo);
  close_socket();
}

void ShmChannel::close_socket() {
  if (socket_.is_open()) around_.poller.remove(socket_.get());
  rueda::hang_up(socket_);
  watch_.ready = 0;
}

void ShmChannel::look_at_peer() {
  if (requests_.is_ended()) return;
  const bool has_ended = around_.processes.has_ended(name_.peer);
  if (!is_up_ && has_ended) return lose(peer_lost(name_, "closed its connection"));
  if (is_up_ && (has_ended || (load_shared(peer_end().state) & kHasLeft) != 0)) hang_up();
}

void ShmChannel::hang_up() {
  is_hung_up_ = true;
  become_busy();
}

void ShmChannel::leave() {
  if (is_up_ && !std::exchange(has_left_, true)) {
    std::atomic_ref<uint32_t>(my_end().state).fetch_or(kHasLeft);
    // Also where this end still has a socket: the other one may have closed its own.
    around_.doorbell.ring(name_in(peer_end()), Doorbell::Rung::kForNews);
  }
  close_socket();
}

void ShmChannel::lose_if_broken() {
  if (!writer_.is_broken() && !reader_.is_broken()) return;
  lose({Code::kInternal, to_string(name_) + " wrote impossible positions into the shared ring."});
}

void ShmChannel::lose(const Status& why) {
  if (requests_.is_ended()) return;
  around_.outcome.losses.push_back({name_.peer, name_.channel, why});
  end(why);
}

void ShmChannel::end(const Status& why) {
  if (requests_.is_ended()) return;
  requests_.end(why);
  leave();
}

}  // namespace rueda::transport
