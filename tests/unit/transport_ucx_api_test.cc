// The declarations of ucx/api.h against UCX's own headers, where they are installed (Debian: libucx-dev).
#include "rueda/transport/ucx/api.h"

#include <gtest/gtest.h>

#if __has_include(<ucp/api/ucp.h>)
#include <ucp/api/ucp.h>

#include <type_traits>

namespace rueda::transport::ucx::transport_ucx_api_test {
namespace {

#define EXPECT_FIELD(Mine, mine, Theirs, theirs)             \
  EXPECT_EQ(offsetof(Mine, mine), offsetof(Theirs, theirs)); \
  EXPECT_EQ(sizeof(std::declval<Mine&>().mine), sizeof(std::declval<Theirs&>().theirs))

TEST(UcxHeaders, the_structures_have_the_layout_of_ucp) {
  static_assert(sizeof(Code8) == sizeof(ucs_status_t));
  // Later versions append fields, which these functions read only if a bit of the mask asks for them.
  EXPECT_FIELD(ContextParams, fields, ucp_params_t, field_mask);
  EXPECT_FIELD(ContextParams, features, ucp_params_t, features);
  EXPECT_FIELD(ContextParams, estimated_peers, ucp_params_t, estimated_num_eps);
  EXPECT_FIELD(ContextParams, name, ucp_params_t, name);
  EXPECT_FIELD(WorkerParams, fields, ucp_worker_params_t, field_mask);
  EXPECT_FIELD(WorkerParams, thread_mode, ucp_worker_params_t, thread_mode);
  EXPECT_FIELD(WorkerParams, cpu_mask, ucp_worker_params_t, cpu_mask);
  EXPECT_FIELD(WorkerParams, client_id, ucp_worker_params_t, client_id);
  EXPECT_FIELD(PeerParams, fields, ucp_ep_params_t, field_mask);
  EXPECT_FIELD(PeerParams, address, ucp_ep_params_t, address);
  EXPECT_FIELD(PeerParams, error_mode, ucp_ep_params_t, err_mode);
  EXPECT_FIELD(PeerParams, on_error, ucp_ep_params_t, err_handler.cb);
  EXPECT_FIELD(PeerParams, on_error_argument, ucp_ep_params_t, err_handler.arg);
  EXPECT_FIELD(PeerParams, local_socket_address, ucp_ep_params_t, local_sockaddr);
  EXPECT_FIELD(RequestParams, fields, ucp_request_param_t, op_attr_mask);
  EXPECT_FIELD(RequestParams, flags, ucp_request_param_t, flags);
  EXPECT_FIELD(RequestParams, on_sent, ucp_request_param_t, cb.send);
  EXPECT_FIELD(RequestParams, on_received, ucp_request_param_t, cb.recv_am);
  EXPECT_FIELD(RequestParams, user_data, ucp_request_param_t, user_data);
  EXPECT_FIELD(RequestParams, memory_type, ucp_request_param_t, memory_type);
  EXPECT_FIELD(RequestParams, memory_handle, ucp_request_param_t, memh);
  EXPECT_FIELD(HandlerParams, fields, ucp_am_handler_param_t, field_mask);
  EXPECT_FIELD(HandlerParams, id, ucp_am_handler_param_t, id);
  EXPECT_FIELD(HandlerParams, flags, ucp_am_handler_param_t, flags);
  EXPECT_FIELD(HandlerParams, on_arrival, ucp_am_handler_param_t, cb);
  EXPECT_FIELD(HandlerParams, argument, ucp_am_handler_param_t, arg);
  EXPECT_FIELD(ArrivalParams, attributes, ucp_am_recv_param_t, recv_attr);
  EXPECT_FIELD(ArrivalParams, reply_to, ucp_am_recv_param_t, reply_ep);
}

TEST(UcxHeaders, the_constants_are_those_of_ucp) {
  EXPECT_EQ(kInProgress, UCS_INPROGRESS);
  EXPECT_EQ(kUnreachable, UCS_ERR_UNREACHABLE);
  EXPECT_EQ(kBusy, UCS_ERR_BUSY);
  EXPECT_EQ(kRejected, UCS_ERR_REJECTED);
  EXPECT_EQ(ContextParams::kHasFeatures, static_cast<uint64_t>(UCP_PARAM_FIELD_FEATURES));
  EXPECT_EQ(ContextParams::kHasPeers, static_cast<uint64_t>(UCP_PARAM_FIELD_ESTIMATED_NUM_EPS));
  EXPECT_EQ(ContextParams::kFeatureWakeup, static_cast<uint64_t>(UCP_FEATURE_WAKEUP));
  EXPECT_EQ(ContextParams::kFeatureActiveMessages, static_cast<uint64_t>(UCP_FEATURE_AM));
  EXPECT_EQ(WorkerParams::kHasThreadMode, static_cast<uint64_t>(UCP_WORKER_PARAM_FIELD_THREAD_MODE));
  EXPECT_EQ(WorkerParams::kSerialized, UCS_THREAD_MODE_SERIALIZED);
  EXPECT_EQ(PeerParams::kHasAddress, static_cast<uint64_t>(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS));
  EXPECT_EQ(PeerParams::kHasErrorMode, static_cast<uint64_t>(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE));
  EXPECT_EQ(PeerParams::kHasErrorHandler, static_cast<uint64_t>(UCP_EP_PARAM_FIELD_ERR_HANDLER));
  EXPECT_EQ(PeerParams::kErrorsOfPeers, UCP_ERR_HANDLING_MODE_PEER);
  EXPECT_EQ(RequestParams::kHasCallback, static_cast<uint32_t>(UCP_OP_ATTR_FIELD_CALLBACK));
  EXPECT_EQ(RequestParams::kHasUserData, static_cast<uint32_t>(UCP_OP_ATTR_FIELD_USER_DATA));
  EXPECT_EQ(RequestParams::kHasFlags, static_cast<uint32_t>(UCP_OP_ATTR_FIELD_FLAGS));
  EXPECT_EQ(RequestParams::kHasMemoryType, static_cast<uint32_t>(UCP_OP_ATTR_FIELD_MEMORY_TYPE));
  EXPECT_EQ(RequestParams::kEager, static_cast<uint32_t>(UCP_AM_SEND_FLAG_EAGER));
  EXPECT_EQ(RequestParams::kRendezvous, static_cast<uint32_t>(UCP_AM_SEND_FLAG_RNDV));
  EXPECT_EQ(RequestParams::kForce, static_cast<uint32_t>(UCP_EP_CLOSE_FLAG_FORCE));
  EXPECT_EQ(RequestParams::kHostMemory, UCS_MEMORY_TYPE_HOST);
  EXPECT_EQ(ArrivalParams::kPersistent, static_cast<uint64_t>(UCP_AM_RECV_ATTR_FLAG_DATA));
  EXPECT_EQ(ArrivalParams::kRendezvous, static_cast<uint64_t>(UCP_AM_RECV_ATTR_FLAG_RNDV));
  EXPECT_EQ(HandlerParams::kHasId, static_cast<uint64_t>(UCP_AM_HANDLER_PARAM_FIELD_ID));
  EXPECT_EQ(HandlerParams::kHasFlags, static_cast<uint64_t>(UCP_AM_HANDLER_PARAM_FIELD_FLAGS));
  EXPECT_EQ(HandlerParams::kHasCallback, static_cast<uint64_t>(UCP_AM_HANDLER_PARAM_FIELD_CB));
  EXPECT_EQ(HandlerParams::kHasArgument, static_cast<uint64_t>(UCP_AM_HANDLER_PARAM_FIELD_ARG));
  EXPECT_EQ(HandlerParams::kWholeMessage, static_cast<uint32_t>(UCP_AM_FLAG_WHOLE_MSG));
  EXPECT_EQ(HandlerParams::kPersistentData, static_cast<uint32_t>(UCP_AM_FLAG_PERSISTENT_DATA));
}

template <class Mine, class Theirs>
struct same_arguments;
// Pointers and integers of equal sizes pass in the same registers.
template <class R, class... A, class S, class... B>
struct same_arguments<R (*)(A...), S(B...)>
    : std::bool_constant<sizeof...(A) == sizeof...(B) && ((sizeof(A) == sizeof(B)) && ...)> {};

TEST(UcxHeaders, the_functions_take_what_those_of_ucp_take) {
  static_assert(same_arguments<decltype(Api::am_send_nbx), decltype(ucp_am_send_nbx)>::value);
  static_assert(same_arguments<decltype(Api::am_recv_data_nbx), decltype(ucp_am_recv_data_nbx)>::value);
  static_assert(same_arguments<decltype(Api::init_version), decltype(ucp_init_version)>::value);
  static_assert(same_arguments<decltype(Api::config_read), decltype(ucp_config_read)>::value);
  static_assert(same_arguments<decltype(Api::config_modify), decltype(ucp_config_modify)>::value);
  static_assert(same_arguments<decltype(Api::worker_create), decltype(ucp_worker_create)>::value);
  static_assert(same_arguments<decltype(Api::worker_get_address), decltype(ucp_worker_get_address)>::value);
  static_assert(same_arguments<decltype(Api::worker_get_efd), decltype(ucp_worker_get_efd)>::value);
  static_assert(same_arguments<decltype(Api::ep_create), decltype(ucp_ep_create)>::value);
  static_assert(same_arguments<decltype(Api::ep_close_nbx), decltype(ucp_ep_close_nbx)>::value);
  static_assert(same_arguments<decltype(HandlerParams::on_arrival),
                               std::remove_pointer_t<ucp_am_recv_callback_t>>::value);
  static_assert(same_arguments<RequestParams::OnSent, std::remove_pointer_t<ucp_send_nbx_callback_t>>::value);
  static_assert(same_arguments<RequestParams::OnReceived,
                               std::remove_pointer_t<ucp_am_recv_data_nbx_callback_t>>::value);
  static_assert(
      same_arguments<decltype(PeerParams::on_error), std::remove_pointer_t<ucp_err_handler_cb_t>>::value);
}

}  // namespace
}  // namespace rueda::transport::ucx::transport_ucx_api_test
#else
TEST(UcxHeaders, are_not_installed) { GTEST_SKIP() << "install libucx-dev to compare the layouts"; }
#endif
