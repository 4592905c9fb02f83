// The part of UCX's interface (libucp.so.0, versions 1.13 and later) that this transport uses. It is declared
// here, because the library is usually installed without its headers; transport_ucx_api_test compares the
// layouts with the headers where those are installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rueda/base/status.h"

namespace rueda::transport::ucx {

inline constexpr unsigned kMajor = 1, kMinor = 13;  // the oldest version that was tried

using Code8 = int8_t;  // ucs_status_t, a packed enum of one byte
inline constexpr Code8 kOk = 0, kInProgress = 1, kUnreachable = -6, kBusy = -15, kRejected = -23;

struct Config;
struct Context;
struct Worker;
struct Address;
struct Peer;  // ucp_ep: "endpoint" is the word for a channel here

struct ContextParams {
  static constexpr uint64_t kHasFeatures = 1 << 0, kHasPeers = 1 << 6, kHasName = 1 << 8;
  static constexpr uint64_t kFeatureWakeup = 1 << 4, kFeatureActiveMessages = 1 << 6;
  uint64_t fields = 0;
  uint64_t features = 0;
  size_t request_size = 0;
  void (*request_init)(void*) = nullptr;
  void (*request_cleanup)(void*) = nullptr;
  uint64_t tag_sender_mask = 0;
  int mt_workers_shared = 0;
  size_t estimated_peers = 0;
  size_t estimated_per_node = 0;
  const char* name = nullptr;
};

struct WorkerParams {
  static constexpr uint64_t kHasThreadMode = 1 << 0;
  static constexpr int kSerialized = 1;  // any thread, one at a time
  uint64_t fields = 0;
  int thread_mode = 0;
  unsigned long cpu_mask[16] = {};
  unsigned events = 0;
  void* user_data = nullptr;
  int event_fd = -1;
  uint64_t flags = 0;
  const char* name = nullptr;
  size_t am_alignment = 0;
  uint64_t client_id = 0;
};

struct SocketAddressOfPeer {
  const void* address = nullptr;
  uint32_t size = 0;
};

struct PeerParams {
  static constexpr uint64_t kHasAddress = 1 << 0, kHasErrorMode = 1 << 1, kHasErrorHandler = 1 << 2;
  static constexpr int kErrorsOfPeers = 1;  // requests to a dead peer complete with an error
  uint64_t fields = 0;
  const Address* address = nullptr;
  int error_mode = 0;
  void (*on_error)(void* argument, Peer* peer, Code8 why) = nullptr;
  void* on_error_argument = nullptr;
  void* user_data = nullptr;
  unsigned flags = 0;
  SocketAddressOfPeer socket_address;
  void* connection_request = nullptr;
  const char* name = nullptr;
  SocketAddressOfPeer local_socket_address;
};

struct RequestParams {
  static constexpr uint32_t kHasCallback = 1 << 1, kHasUserData = 1 << 2, kHasFlags = 1 << 4,
                            kHasMemoryType = 1 << 6;
  static constexpr uint32_t kEager = 1 << 1, kRendezvous = 1 << 2;  // of an active message
  static constexpr uint32_t kForce = 1 << 0;                        // of closing
  static constexpr int kHostMemory = 0;
  using OnSent = void (*)(void* request, Code8 code, void* user_data);
  using OnReceived = void (*)(void* request, Code8 code, size_t bytes, void* user_data);
  uint32_t fields = 0;
  uint32_t flags = 0;
  void* request = nullptr;
  union {
    OnSent on_sent = nullptr;
    OnReceived on_received;
  };
  uint64_t datatype = 0;
  void* user_data = nullptr;
  void* reply_buffer = nullptr;
  int memory_type = kHostMemory;
  void* received_info = nullptr;
  void* memory_handle = nullptr;
};

struct ArrivalParams {
  static constexpr uint64_t kPersistent = 1 << 16, kRendezvous = 1 << 17;
  uint64_t attributes = 0;
  Peer* reply_to = nullptr;
};

struct HandlerParams {
  static constexpr uint64_t kHasId = 1 << 0, kHasFlags = 1 << 1, kHasCallback = 1 << 2, kHasArgument = 1 << 3;
  static constexpr uint32_t kWholeMessage = 1 << 0, kPersistentData = 1 << 1;
  uint64_t fields = 0;
  unsigned id = 0;
  uint32_t flags = 0;
  Code8 (*on_arrival)(void* argument, const void* header, size_t header_bytes, void* data, size_t bytes,
                      const ArrivalParams* params) = nullptr;
  void* argument = nullptr;
};

// Functions that return a request: null = done at once, an error code as a pointer, or a request.
inline bool is_request(void* result) {
  return reinterpret_cast<uintptr_t>(result) - 1 < static_cast<uintptr_t>(-100) - 1;
}
inline Code8 code_of(void* result) {
  return is_request(result) ? kInProgress : static_cast<Code8>(reinterpret_cast<intptr_t>(result));
}

struct Api {
  void (*get_version)(unsigned* major, unsigned* minor, unsigned* release);
  const char* (*status_string)(Code8);
  Code8 (*config_read)(const char* prefix, const char* file, Config**);
  Code8 (*config_modify)(Config*, const char* name, const char* value);
  void (*config_release)(Config*);
  Code8 (*init_version)(unsigned major, unsigned minor, const ContextParams*, const Config*, Context**);
  void (*cleanup)(Context*);
  Code8 (*worker_create)(Context*, const WorkerParams*, Worker**);
  void (*worker_destroy)(Worker*);
  Code8 (*worker_get_address)(Worker*, Address**, size_t* bytes);
  void (*worker_release_address)(Worker*, Address*);
  unsigned (*worker_progress)(Worker*);
  Code8 (*worker_get_efd)(Worker*, int* fd);
  Code8 (*worker_arm)(Worker*);
  Code8 (*worker_set_am_recv_handler)(Worker*, const HandlerParams*);
  Code8 (*ep_create)(Worker*, const PeerParams*, Peer**);
  void* (*ep_close_nbx)(Peer*, const RequestParams*);
  void* (*am_send_nbx)(Peer*, unsigned id, const void* header, size_t header_bytes, const void* data,
                       size_t bytes, const RequestParams*);
  void* (*am_recv_data_nbx)(Worker*, void* descriptor, void* into, size_t bytes, const RequestParams*);
  void (*am_data_release)(Worker*, void* data);
  void (*request_free)(void* request);
};

// Loads the library once per process and never unloads it. Undoes what loading does to the signals of the
// process. A failure is one sentence for the user.
Result<const Api*> load_api();

// Ok if this transport can use that version. Pure.
Status check_version(unsigned major, unsigned minor, unsigned release);

// Whether a value of UCX_TLS ("all", "rc,sm", "^tcp") lets UCX use shared memory. Pure.
bool may_share_memory(std::string_view transports);

// Whether such a value lets UCX use TCP. Pure.
bool may_use_tcp(std::string_view transports);

std::string describe(const Api& api, Code8 code);  // "Destination is unreachable"

}  // namespace rueda::transport::ucx
