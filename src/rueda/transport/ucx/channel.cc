#include "rueda/transport/ucx/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rueda::transport {
namespace {

// How far a count of 32 bits, which wraps around, is ahead of another. Negative: it is older.
int32_t ahead(uint32_t count, uint32_t of) { return static_cast<int32_t>(count - of); }

// Advances a count of the peer. Reports may overtake one another, so older counts are ignored. False: the
// peer counts more than there is.
bool advance(uint32_t& count, uint32_t told, uint32_t most) {
  if (ahead(told, most) > 0) return false;
  if (ahead(told, count) > 0) count = told;
  return true;
}

}  // namespace

void UcxChannel::send(Ticket ticket, std::span<const std::byte> bytes) {
  requests_.post(SendRequest{ticket, bytes});
}

void UcxChannel::recv(Ticket ticket, std::span<std::byte> bytes) {
  requests_.post(RecvRequest{.ticket = ticket, .into = bytes.data(), .bytes = bytes.size()});
}

void UcxChannel::recv_into(Ticket ticket, size_t bytes, size_t unit_bytes, Consumer& consumer) {
  RUEDA_CHECK(unit_bytes <= BounceBuffers::kMaxUnitBytes, "the unit does not fit in front of a piece");
  requests_.post(
      RecvRequest{.ticket = ticket, .bytes = bytes, .unit_bytes = unit_bytes, .consumer = &consumer});
}

size_t UcxChannel::withdraw(size_t receives) {
  return requests_.withdraw(receives, matched_messages_ + (has_begun_ ? 1 : 0));
}

Status UcxChannel::broken(const std::string& how) const {
  return {Code::kInternal, to_string(name_) + " broke the protocol: " + how + "."};
}

Status UcxChannel::on_message(const PieceHeader& header, ActiveMessage& active_message) {
  if (is_ended()) return Status::ok();
  if (Status status = accept_counts(header); !status.is_ok()) return status;
  if (header.kind == PieceKind::kData) return accept_piece(header, active_message);
  if (header.kind == PieceKind::kSync) {
    is_asked_ = true;
    report_at_ = header.piece;
  }
  return Status::ok();
}

Status UcxChannel::accept_counts(const PieceHeader& header) {
  if (!advance(peer_arrived_, header.arrived, next_piece_) ||
      !advance(peer_consumed_, header.consumed, next_piece_))
    return broken("it confirms pieces that were never sent");
  return Status::ok();
}

// Pieces overtake one another: UCX keeps no order between messages that it cuts itself and others.
Status UcxChannel::accept_piece(const PieceHeader& header, ActiveMessage& active_message) {
  InPiece& piece = in_[slot(header.piece)];
  if (header.piece - consumed_ >= kUcxWindow || piece.is_here)
    return broken("piece " + std::to_string(header.piece) + " comes twice or too early");
  piece.is_here = true;
  piece.sequence = header.sequence;
  piece.message_bytes = header.bytes;
  piece.active_message = std::move(active_message);
  ++arrived_;
  return Status::ok();
}

bool UcxChannel::may_send() const {
  return wire_.peer != nullptr && cut_messages_ < requests_.sends.size() &&
         next_piece_ - oldest_ < kUcxWindow && next_piece_ - peer_consumed_ < kUcxWindow;
}

bool UcxChannel::may_match() const {
  const InPiece& next = in_[slot(matched_)];
  if (has_failed_ || matched_ - consumed_ >= kUcxWindow || !next.is_here ||
      matched_messages_ == requests_.recvs.size())
    return false;
  if (!next.active_message.is_remote()) return true;
  const bool has_place =
      requests_.recvs[matched_messages_].consumer == nullptr || wire_.bounce_buffers->has_room();
  return wire_.peer != nullptr && has_place;
}

bool UcxChannel::are_counts_due() const {
  if (wire_.peer == nullptr || counts_.operation.is_open) return false;
  const bool is_wanted = is_asked_ && ahead(arrived_, report_at_) >= 0;
  return is_question_due_ || is_wanted || consumed_ - reported_ >= kUcxWindow / 2;
}

bool UcxChannel::has_work() const {
  if (is_ended()) return false;
  const bool is_sent = oldest_ != next_piece_ && !out_[slot(oldest_)].operation.is_open;
  const bool is_received = consumed_ != matched_ && !in_[slot(consumed_)].operation.is_open;
  return is_sent || is_received || may_send() || may_match() || are_counts_due() ||
         (!why_hung_up_.is_ok() && is_exhausted() && (!is_loss_reported_ || wire_.open_count == 0));
}

Result<bool> UcxChannel::progress() {
  bool is_moved = false;
  if (is_ended()) return is_moved;
  if (Status status = complete_sends(is_moved); !status.is_ok()) return status;
  is_moved |= send_pieces();
  // In turns, because what is delivered makes room for what is fetched next. Bounded by the window.
  bool is_received = true;
  for (uint32_t round = 0; round < kUcxWindow && is_received; ++round) {
    is_received = false;
    if (Status status = match(is_received); !status.is_ok()) return status;
    if (Status status = deliver(is_received); !status.is_ok()) return status;
    is_moved |= is_received;
  }
  if (are_counts_due()) send_counts();
  if (why_hung_up_.is_ok() || is_moved || !is_exhausted()) return is_moved;
  report_loss();
  if (wire_.open_count > 0) return false;
  end(why_hung_up_);
  return true;
}

Status UcxChannel::complete_sends(bool& is_moved) {
  while (oldest_ != next_piece_) {
    OutPiece& piece = out_[slot(oldest_)];
    if (piece.operation.is_open) return Status::ok();
    if (piece.operation.code != ucx::kOk) {
      if (!why_hung_up_.is_ok()) return Status::ok();
      return peer_lost(name_,
                       "did not take a message (" + wire_.worker->describe(piece.operation.code) + ")");
    }
    ++oldest_;
    is_moved = true;
    if (!piece.is_last) continue;
    requests_.finish_send();
    --cut_messages_;
  }
  return Status::ok();
}

PieceHeader UcxChannel::make_header(PieceKind kind) const {
  return {.token = wire_.token,
          .from = wire_.me,
          .kind = kind,
          .channel = name_.channel,
          .piece = next_piece_,
          .arrived = arrived_,
          .consumed = consumed_};
}

bool UcxChannel::send_pieces() {
  const bool is_any = may_send();
  while (may_send()) send_piece();
  return is_any;
}

void UcxChannel::send_piece() {
  const std::span<const std::byte> message = requests_.sends[cut_messages_].bytes;
  const std::span<const std::byte> bytes =
      message.subspan(cut_bytes_, piece_bytes(message.size(), cut_bytes_));
  OutPiece& piece = out_[slot(next_piece_)];
  piece.header = make_header(PieceKind::kData);
  piece.header.sequence = send_sequence_;
  piece.header.bytes = message.size();
  cut_bytes_ += bytes.size();
  piece.is_last = cut_bytes_ == message.size();
  if (piece.is_last) {
    cut_bytes_ = 0;
    ++cut_messages_;
    ++send_sequence_;
  }
  ++next_piece_;
  reported_ = consumed_;
  piece.operation.open_count = &wire_.open_count;
  wire_.worker->send(wire_.peer, std::as_bytes(std::span(&piece.header, 1)), bytes, is_eager(bytes.size()),
                     piece.operation);
}

void UcxChannel::ask_for_report() { is_question_due_ = true; }

void UcxChannel::send_counts() {
  counts_.header = make_header(is_question_due_ ? PieceKind::kSync : PieceKind::kReport);
  is_question_due_ = false;
  if (ahead(arrived_, report_at_) >= 0) is_asked_ = false;
  reported_ = consumed_;
  counts_.operation.open_count = &wire_.open_count;
  wire_.worker->send(wire_.peer, std::as_bytes(std::span(&counts_.header, 1)), {}, true, counts_.operation);
}

// Gives pieces to receives, in order. Those of several receives are fetched at a time.
Status UcxChannel::match(bool& is_moved) {
  while (may_match()) {
    InPiece& piece = in_[slot(matched_)];
    const RecvRequest& request = requests_.recvs[matched_messages_];
    const MessageHeader header{.sequence = piece.sequence, .bytes = piece.message_bytes};
    if (Status status = check_header(header, match_sequence_, request.bytes, name_); !status.is_ok())
      return status;
    const size_t bytes = piece_bytes(request.bytes, matched_bytes_);
    if (piece.active_message.size() != bytes || piece.active_message.is_remote() == is_eager(bytes))
      return broken("a piece of message " + std::to_string(match_sequence_) + " has the wrong size");
    piece.offset = matched_bytes_;
    take(piece, request);
    matched_bytes_ += bytes;
    piece.is_last = matched_bytes_ == request.bytes;
    has_begun_ = !piece.is_last;
    if (piece.is_last) {
      matched_bytes_ = 0;
      ++matched_messages_;
      ++match_sequence_;
    }
    ++matched_;
    is_moved = true;
  }
  return Status::ok();
}

void UcxChannel::take(InPiece& piece, const RecvRequest& request) {
  piece.operation.code = ucx::kOk;
  const size_t bytes = piece.active_message.size();
  if (!piece.active_message.is_remote()) {
    if (request.consumer != nullptr || bytes == 0) return;  // it is delivered when its turn comes
    std::memcpy(request.into + piece.offset, piece.active_message.bytes().data(), bytes);
    return piece.active_message.reset();
  }
  std::byte* into = nullptr;
  if (request.consumer == nullptr) {
    into = request.into + piece.offset;
  } else {
    piece.bounce = wire_.bounce_buffers->take();
    into = piece.bounce + piece.offset % request.unit_bytes;
  }
  piece.operation.open_count = &wire_.open_count;
  wire_.worker->receive(std::move(piece.active_message), {into, bytes}, piece.operation);
}

Status UcxChannel::deliver(bool& is_moved) {
  while (consumed_ != matched_ && !in_[slot(consumed_)].operation.is_open) {
    InPiece& piece = in_[slot(consumed_)];
    if (piece.operation.code != ucx::kOk) {
      if (!why_hung_up_.is_ok()) return Status::ok();
      return peer_lost(name_,
                       "did not send a message (" + wire_.worker->describe(piece.operation.code) + ")");
    }
    const RecvRequest& request = requests_.recvs.front();
    if (request.consumer != nullptr) hand_over(piece, request);
    piece.active_message.reset();
    piece.is_here = false;
    ++consumed_;
    is_moved = true;
    if (!piece.is_last) continue;
    RUEDA_CHECK(reassembly_.size() == 0, "a message ended within a unit");
    requests_.finish_recv();
    --matched_messages_;
  }
  return Status::ok();
}

// A piece may begin within a unit. It lies so far behind the beginning of its place that the bytes which
// came before it fit in front.
void UcxChannel::hand_over(InPiece& piece, const RecvRequest& request) {
  const size_t bytes = piece_bytes(request.bytes, piece.offset);
  const size_t before = piece.offset % request.unit_bytes;
  RUEDA_CHECK(reassembly_.size() == before, "the kept bytes are not those before the piece");
  std::byte* place = piece.bounce;
  if (place == nullptr) {
    place = wire_.bounce_buffers->scratch();
    if (bytes > 0) std::memcpy(place + before, piece.active_message.bytes().data(), bytes);
  }
  const std::span<std::byte> whole(place, before + bytes);
  reassembly_.prepend_to(whole);
  reassembly_.deliver(request, piece.offset + bytes, whole);
  if (piece.bounce != nullptr) wire_.bounce_buffers->give_back(std::exchange(piece.bounce, nullptr));
}

void UcxChannel::hang_up(const Status& why, bool has_failed) {
  why_hung_up_ = why;
  has_failed_ = has_failed;
}

// Whether the peer is gone and nothing is left that somebody may still receive. A send, or a receive for
// more, ends the channel.
bool UcxChannel::is_exhausted() const {
  const InPiece& next = in_[slot(matched_)];
  const bool is_readable =
      next.is_here && matched_ - consumed_ < kUcxWindow && !next.active_message.is_remote();
  return has_failed_ || !requests_.sends.empty() || !requests_.recvs.empty() || !is_readable;
}

void UcxChannel::drop_arrivals() {
  for (InPiece& piece : in_) piece.active_message.reset();
}

void UcxChannel::end(const Status& why) {
  if (is_ended()) return;
  drop_arrivals();
  for (InPiece& piece : in_)
    if (piece.bounce != nullptr) wire_.bounce_buffers->give_back(std::exchange(piece.bounce, nullptr));
  requests_.end(why);
}

void UcxChannel::report_loss() {
  if (std::exchange(is_loss_reported_, true)) return;
  outcome_.losses.push_back({name_.peer, name_.channel, why_hung_up_});
}

void UcxChannel::lose(const Status& why) {
  if (is_ended()) return;
  if (why_hung_up_.is_ok()) why_hung_up_ = why;
  report_loss();
  end(why_hung_up_);
}

}  // namespace rueda::transport
