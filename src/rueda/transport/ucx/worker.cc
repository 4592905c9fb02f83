#include "rueda/transport/ucx/worker.h"

#include <pthread.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

namespace rueda::transport {
namespace {

using ucx::Code8;
using ucx::RequestParams;

constexpr unsigned kMessageId = 0;

struct Setting {
  const char *name, *value;
};
// Ours, whatever the environment says.
constexpr Setting kSettings[] = {
    // The socket of a link reveals a dead peer. UCX's own signs of life would wake sleeping ranks.
    {"KEEPALIVE_INTERVAL", "inf"},
    // All buffers are host memory, so there is nothing to look up.
    {"MEMTYPE_CACHE", "n"},
};
// Off by default, and without it UCX makes no connection that can fail. Where shared memory is not used, UCX
// warns about the setting.
constexpr Setting kSharedMemory = {"MM_ERROR_HANDLING", "y"};
// UCX's TCP listens on all interfaces without authentication, and writes where a caller says. Who wants it
// names it in UCX_TLS.
constexpr Setting kSafeTransports = {"TLS", "^tcp"};
// If a peer dies while UCX's TCP sends from the memory of a caller, UCX 1.13 sometimes aborts this process
// (uct_iface.h:884); it was not seen where TCP copies. A user may set another value.
constexpr Setting kCopiedSends = {"ZCOPY_THRESH", "inf"};
constexpr const char* kCopiedSendsVariable = "UCX_ZCOPY_THRESH";

// Threads that UCX starts inherit the mask, and signals are for the threads of the application.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

ActiveMessage& ActiveMessage::operator=(ActiveMessage&& other) noexcept {
  if (this == &other) return *this;
  reset();
  worker_ = other.worker_;
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  is_remote_ = std::exchange(other.is_remote_, false);
  return *this;
}

void ActiveMessage::reset() {
  if (data_ != nullptr) worker_->api_.am_data_release(worker_->worker_, data_);
  data_ = nullptr;
  bytes_ = 0;
  is_remote_ = false;
}

Result<std::unique_ptr<UcxWorker>> UcxWorker::make(size_t peers, OnArrival on_arrival) {
  const BlockedSignals blocked;
  const Result<const ucx::Api*> api = ucx::load_api();
  if (!api.is_ok()) return api.status();
  std::unique_ptr<UcxWorker> self(new UcxWorker(*api.value(), std::move(on_arrival)));  // NOLINT: private
  if (Status status = self->open(peers); !status.is_ok()) return status;
  return self;
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) api_.worker_destroy(worker_);
  if (context_ != nullptr) api_.cleanup(context_);
}

Status UcxWorker::failed(const char* what, Code8 code) const {
  return {Code::kUnavailable,
          "UCX cannot " + std::string(what) + ": " + describe(code) +
              ". Check UCX_TLS and UCX_NET_DEVICES, or remove ucx from RUEDA_TRANSPORTS."};
}

Status UcxWorker::open(size_t peers) {
  ucx::Config* config = nullptr;
  if (const Code8 code = api_.config_read(nullptr, nullptr, &config); code != ucx::kOk)
    return failed("read its settings (UCX_...)", code);
  const auto modify = [&](const Setting& setting) {
    (void)api_.config_modify(config, setting.name, setting.value);
  };
  for (const Setting& setting : kSettings) modify(setting);
  const char* chosen = std::getenv("UCX_TLS");
  if (chosen == nullptr) modify(kSafeTransports);
  const char* transports = chosen == nullptr ? kSafeTransports.value : chosen;
  if (ucx::may_share_memory(transports)) modify(kSharedMemory);
  if (ucx::may_use_tcp(transports) && std::getenv(kCopiedSendsVariable) == nullptr) modify(kCopiedSends);
  ucx::ContextParams params;
  params.fields = ucx::ContextParams::kHasFeatures | ucx::ContextParams::kHasPeers;
  params.features = ucx::ContextParams::kFeatureActiveMessages | ucx::ContextParams::kFeatureWakeup;
  params.estimated_peers = peers;
  const Code8 code = api_.init_version(ucx::kMajor, ucx::kMinor, &params, config, &context_);
  api_.config_release(config);
  if (code != ucx::kOk) {
    context_ = nullptr;
    return failed("start", code);
  }
  return open_worker();
}

Status UcxWorker::open_worker() {
  ucx::WorkerParams params;
  params.fields = ucx::WorkerParams::kHasThreadMode;
  params.thread_mode = ucx::WorkerParams::kSerialized;
  if (const Code8 code = api_.worker_create(context_, &params, &worker_); code != ucx::kOk) {
    worker_ = nullptr;
    return failed("open its devices", code);
  }
  if (const Code8 code = api_.worker_get_efd(worker_, &wake_fd_); code != ucx::kOk)
    return failed("wake a sleeping rank", code);
  ucx::HandlerParams handler;
  handler.fields = ucx::HandlerParams::kHasId | ucx::HandlerParams::kHasFlags |
                   ucx::HandlerParams::kHasCallback | ucx::HandlerParams::kHasArgument;
  handler.id = kMessageId;
  handler.flags = ucx::HandlerParams::kWholeMessage | ucx::HandlerParams::kPersistentData;
  handler.on_arrival = on_message;
  handler.argument = this;
  if (const Code8 code = api_.worker_set_am_recv_handler(worker_, &handler); code != ucx::kOk)
    return failed("receive messages", code);
  ucx::Address* address = nullptr;
  size_t bytes = 0;
  if (const Code8 code = api_.worker_get_address(worker_, &address, &bytes); code != ucx::kOk)
    return failed("name its address", code);
  const auto* raw = reinterpret_cast<const std::byte*>(address);
  address_.assign(raw, raw + bytes);
  api_.worker_release_address(worker_, address);
  return Status::ok();
}

bool UcxWorker::progress() { return api_.worker_progress(worker_) != 0; }

bool UcxWorker::arm() { return api_.worker_arm(worker_) == ucx::kOk; }

Result<ucx::Peer*> UcxWorker::connect(std::span<const std::byte> address, Code8& why) {
  ucx::PeerParams params;
  params.fields =
      ucx::PeerParams::kHasAddress | ucx::PeerParams::kHasErrorMode | ucx::PeerParams::kHasErrorHandler;
  params.address = reinterpret_cast<const ucx::Address*>(address.data());
  params.error_mode = ucx::PeerParams::kErrorsOfPeers;
  params.on_error = [](void* reason, ucx::Peer*, Code8 code) { *static_cast<Code8*>(reason) = code; };
  params.on_error_argument = &why;
  ucx::Peer* peer = nullptr;
  const BlockedSignals blocked;
  if (const Code8 code = api_.ep_create(worker_, &params, &peer); code != ucx::kOk)
    return Status(Code::kUnavailable, describe(code));
  return peer;
}

void UcxWorker::disconnect(ucx::Peer* peer) {
  RequestParams params;
  params.fields = RequestParams::kHasFlags;
  params.flags = RequestParams::kForce;
  void* request = api_.ep_close_nbx(peer, &params);
  if (ucx::is_request(request)) api_.request_free(request);
}

void UcxWorker::begin(UcxOperation& operation, RequestParams& params) {
  RUEDA_CHECK(!operation.is_open && operation.open_count != nullptr, "an operation is used twice");
  operation.is_open = true;
  ++*operation.open_count;
  operation.worker = this;
  params.fields |= RequestParams::kHasCallback | RequestParams::kHasUserData | RequestParams::kHasMemoryType;
  params.user_data = &operation;
}

void UcxWorker::finish(UcxOperation& operation, Code8 code) {
  operation.is_open = false;
  operation.code = code;
  --*operation.open_count;
}

void UcxWorker::settle(UcxOperation& operation, void* result) {
  if (!ucx::is_request(result)) finish(operation, ucx::code_of(result));
}

void UcxWorker::send(ucx::Peer* peer, std::span<const std::byte> header, std::span<const std::byte> bytes,
                     bool is_eager, UcxOperation& operation) {
  RequestParams params;
  begin(operation, params);
  params.fields |= RequestParams::kHasFlags;
  params.flags = is_eager ? RequestParams::kEager : RequestParams::kRendezvous;
  params.on_sent = [](void* request, Code8 code, void* user_data) {
    auto& sent = *static_cast<UcxOperation*>(user_data);
    sent.worker->api_.request_free(request);
    finish(sent, code);
  };
  settle(operation, api_.am_send_nbx(peer, kMessageId, header.data(), header.size(), bytes.data(),
                                     bytes.size(), &params));
}

void UcxWorker::receive(ActiveMessage active_message, std::span<std::byte> into, UcxOperation& operation) {
  RUEDA_CHECK(active_message.is_remote_ && active_message.bytes_ == into.size(),
              "an active message is received as it is");
  RequestParams params;
  begin(operation, params);
  params.on_received = [](void* request, Code8 code, size_t, void* user_data) {
    auto& received = *static_cast<UcxOperation*>(user_data);
    received.worker->api_.request_free(request);
    finish(received, code);
  };
  void* data = std::exchange(active_message.data_, nullptr);  // UCX owns it from here on, even if this fails
  settle(operation, api_.am_recv_data_nbx(worker_, data, into.data(), into.size(), &params));
}

Code8 UcxWorker::on_message(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                            const ucx::ArrivalParams* params) {
  auto& worker = *static_cast<UcxWorker*>(self);
  const bool is_remote = (params->attributes & ucx::ArrivalParams::kRendezvous) != 0;
  const bool is_kept = is_remote || (params->attributes & ucx::ArrivalParams::kPersistent) != 0;
  RUEDA_CHECK(is_kept || bytes == 0, "kPersistentData did not keep the data of a message");
  ActiveMessage active_message(&worker, bytes > 0 ? data : nullptr, bytes, is_remote);
  worker.on_arrival_({static_cast<const std::byte*>(header), header_bytes}, active_message);
  if (active_message.data_ == nullptr && bytes > 0) return ucx::kInProgress;
  active_message.data_ = nullptr;  // UCX drops it
  return is_remote ? ucx::kRejected : ucx::kOk;
}

}  // namespace rueda::transport
