"""Every name of Horovod's PyTorch interface and the test that shows its behaviour.

Keys: "module:name" as user code imports it. Values: "file::test" below tests/. test_contract_checklist.py
holds this list against the code: every name must import, every test must exist, and no exported name may be
missing here.
"""

WIRE = "multiprocess/test_wire_types.py::test_"
COLLECTIVES = "multiprocess/test_torch_collectives.py::test_"
COMPRESSION = "multiprocess/test_torch_compression.py::test_"
ERRORS = "multiprocess/test_torch_errors.py::test_"
FUNCTIONS = "multiprocess/test_torch_functions.py::test_"
GRADIENTS = "multiprocess/test_torch_gradients.py::test_"
LIFECYCLE = "multiprocess/test_torch_lifecycle.py::test_"
OPTIMIZER = "multiprocess/test_torch_optimizer.py::test_"
DELAYED = "multiprocess/test_torch_delayed.py::test_"
LOCAL = "multiprocess/test_torch_local_steps.py::test_"
SHARDED = "multiprocess/test_torch_sharded.py::test_"
TIMELINE = "multiprocess/test_timeline.py::test_"
FRONT_END = "python/test_torch_front_end.py::test_"
ALIAS = "python/test_horovod_alias.py::test_"

TORCH = {
    "init": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "shutdown": LIFECYCLE + "init_and_shutdown_two_hundred_times",
    "is_initialized": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "start_timeline": LIFECYCLE + "timelines_can_be_started_and_stopped_at_any_time",
    "stop_timeline": LIFECYCLE + "timelines_can_be_started_and_stopped_at_any_time",
    "mark_step": TIMELINE + "a_flight_record_is_written_without_a_timeline",
    "timed_input": TIMELINE + "a_flight_record_is_written_without_a_timeline",
    "write_flight_record": TIMELINE + "a_flight_record_is_written_without_a_timeline",
    "metrics": "multiprocess/test_status.py::test_metrics_count_what_every_front_end_does",
    "size": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "local_size": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "cross_size": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "rank": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "local_rank": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "cross_rank": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "mpi_threads_supported": FRONT_END + "query_functions_answer_without_init",
    "mpi_enabled": FRONT_END + "query_functions_answer_without_init",
    "mpi_built": FRONT_END + "query_functions_answer_without_init",
    "gloo_enabled": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "gloo_built": FRONT_END + "query_functions_answer_without_init",
    "nccl_built": FRONT_END + "query_functions_answer_without_init",
    "ddl_built": FRONT_END + "query_functions_answer_without_init",
    "ccl_built": FRONT_END + "query_functions_answer_without_init",
    "cuda_built": FRONT_END + "query_functions_answer_without_init",
    "rocm_built": FRONT_END + "query_functions_answer_without_init",
    "sycl_built": FRONT_END + "query_functions_answer_without_init",
    "is_homogeneous": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "Average": COLLECTIVES + "allreduce_averages_by_default",
    "Sum": COLLECTIVES + "allreduce_sums_every_dtype_and_shape",
    "Adasum": COLLECTIVES + "adasum_adds_orthogonal_and_averages_parallel_vectors",
    "Min": COLLECTIVES + "allreduce_min_max_and_product",
    "Max": COLLECTIVES + "allreduce_min_max_and_product",
    "Product": COLLECTIVES + "allreduce_min_max_and_product",
    "ProcessSet": FUNCTIONS + "process_sets_can_be_added_used_and_removed",
    "global_process_set": LIFECYCLE + "topology_before_init_and_after_shutdown",
    "add_process_set": FUNCTIONS + "process_sets_can_be_added_used_and_removed",
    "remove_process_set": FUNCTIONS + "process_sets_can_be_added_used_and_removed",
    "HorovodInternalError": ERRORS + "mismatched_data_types",
    "Compression": COLLECTIVES + "compression_restores_the_type",
    "rescale_residuals": WIRE + "what_encoding_loses_comes_with_the_next_steps",
    "DelayedOptimizer": DELAYED + "own_gradients_count_at_once_and_those_of_others_one_step_later",
    "DiLoCo": LOCAL + "diloco_is_what_its_paper_says",
    "LocalSGD": LOCAL + "ranks_agree_after_so_many_steps_and_not_before",
    "DistributedOptimizer": OPTIMIZER + "loss_curve_equals_one_process_with_the_whole_batch",
    "ShardedOptimizer": SHARDED + "fifty_steps_give_the_bits_of_the_optimizer_that_is_not_sharded",
    "PowerSGD": COMPRESSION + "each_step_of_powersgd_equals_one_in_a_single_process",
    "TopK": COMPRESSION + "steps_of_topk_have_the_bits_of_a_single_process",
    "SyncBatchNorm": GRADIENTS + "sync_batch_norm_equals_batch_norm_over_the_whole_batch",
    "allreduce": COLLECTIVES + "allreduce_sums_every_dtype_and_shape",
    "allreduce_async": COLLECTIVES + "async_handles_poll_and_synchronize_once",
    "allreduce_": COLLECTIVES + "in_place_allreduce_writes_leaf_parameters_and_returns_them",
    "allreduce_async_": COLLECTIVES + "in_place_allreduce_writes_leaf_parameters_and_returns_them",
    "grouped_allreduce": COLLECTIVES + "grouped_allreduce_keeps_order_and_containers",
    "grouped_allreduce_async": COLLECTIVES + "grouped_allreduce_keeps_order_and_containers",
    "grouped_allreduce_": COLLECTIVES + "grouped_allreduce_keeps_order_and_containers",
    "grouped_allreduce_async_": COLLECTIVES + "grouped_allreduce_keeps_order_and_containers",
    "sparse_allreduce_async": COLLECTIVES + "sparse_allreduce_holds_all_entries",
    "allgather": COLLECTIVES + "allgather_concatenates_uneven_rows_of_every_dtype",
    "allgather_async": COLLECTIVES + "grouped_allgather_returns_a_tuple",
    "grouped_allgather": COLLECTIVES + "grouped_allgather_returns_a_tuple",
    "grouped_allgather_async": COLLECTIVES + "grouped_allgather_returns_a_tuple",
    "broadcast": COLLECTIVES + "broadcast_from_every_root_and_dtype",
    "broadcast_async": COLLECTIVES + "broadcast_from_every_root_and_dtype",
    "broadcast_": COLLECTIVES + "broadcast_from_every_root_and_dtype",
    "broadcast_async_": COLLECTIVES + "broadcast_from_every_root_and_dtype",
    "alltoall": COLLECTIVES + "alltoall_even_and_with_splits",
    "alltoall_async": COLLECTIVES + "alltoall_even_and_with_splits",
    "reducescatter": COLLECTIVES + "reducescatter_slices_rows_first_ranks_longer",
    "reducescatter_async": COLLECTIVES + "grouped_reducescatter_containers",
    "grouped_reducescatter": COLLECTIVES + "grouped_reducescatter_containers",
    "grouped_reducescatter_async": COLLECTIVES + "grouped_reducescatter_containers",
    "join": FUNCTIONS + "join_lets_uneven_ranks_finish_and_names_the_last",
    "barrier": COLLECTIVES + "barrier_holds_everyone_back",
    "poll": COLLECTIVES + "async_handles_poll_and_synchronize_once",
    "synchronize": COLLECTIVES + "async_handles_poll_and_synchronize_once",
    "broadcast_parameters": FUNCTIONS + "broadcast_parameters_takes_any_iterable",
    "broadcast_optimizer_state": FUNCTIONS + "optimizer_state_becomes_roots",
    "broadcast_object": FUNCTIONS + "objects_travel_with_and_without_a_name",
    "allgather_object": FUNCTIONS + "objects_travel_with_and_without_a_name",
}

CHECKLIST = {f"rueda.torch:{name}": test for name, test in TORCH.items()}
CHECKLIST.update({f"horovod.torch:{name}": test for name, test in TORCH.items()})
CHECKLIST.update(
    {
        "horovod.torch.mpi_ops:is_homogeneous": LIFECYCLE + "topology_before_init_and_after_shutdown",
        "horovod.torch.mpi_ops:_basics": FUNCTIONS + "process_sets_can_be_added_used_and_removed",
        "horovod.torch.mpi_ops:allreduce": COLLECTIVES + "allreduce_sums_every_dtype_and_shape",
        "horovod.torch.functions:broadcast_parameters": FUNCTIONS + "broadcast_parameters_takes_any_iterable",
        "horovod.torch.compression:Compressor": FRONT_END + "own_compressors_are_used",
        "horovod.torch.optimizer:DistributedOptimizer": OPTIMIZER
        + "the_wrapper_is_a_subclass_with_the_same_name_and_without_state",
        "horovod.torch.sync_batch_norm:SyncBatchNorm": GRADIENTS
        + "sync_batch_norm_equals_batch_norm_over_the_whole_batch",
        "horovod.common.exceptions:HorovodInternalError": ALIAS
        + "exceptions_keep_their_classes_and_attributes",
        "horovod.common.exceptions:HostsUpdatedInterrupt": ALIAS
        + "exceptions_keep_their_classes_and_attributes",
        "horovod.common.exceptions:HorovodVersionMismatchError": ALIAS
        + "exceptions_keep_their_classes_and_attributes",
        "horovod.common.exceptions:get_version_mismatch_message": ALIAS
        + "exceptions_keep_their_classes_and_attributes",
        "horovod.common.process_sets:ProcessSet": ALIAS + "alias_and_rueda_share_their_objects",
        "horovod.common.basics:HorovodBasics": ALIAS + "alias_and_rueda_share_their_objects",
        "horovod.common.util:extension_available": ALIAS + "extension_queries",
        "horovod.common.util:gpu_available": ALIAS + "extension_queries",
        "horovod.common.util:mpi_built": ALIAS + "extension_queries",
        "horovod.common.util:gloo_built": ALIAS + "extension_queries",
        "horovod.common.util:nccl_built": ALIAS + "extension_queries",
        "horovod.common.util:ddl_built": ALIAS + "extension_queries",
        "horovod.common.util:ccl_built": ALIAS + "extension_queries",
        "horovod.common.util:check_extension": ALIAS + "extension_queries",
        "horovod.common.util:check_installed_version": ALIAS + "extension_queries",
        "horovod.common.util:env": ALIAS + "env_restores_the_environment",
        "horovod.common.util:num_rank_is_power_2": ALIAS + "small_helpers",
        "horovod.common.util:split_list": ALIAS + "small_helpers",
        "horovod.common.util:is_iterable": ALIAS + "small_helpers",
        "horovod.common.util:is_version_greater_equal_than": ALIAS + "versions_are_compared_as_versions",
        "horovod.common.util:get_average_backwards_compatibility_fun": ALIAS + "small_helpers",
        "horovod:run": ALIAS + "run_has_the_signature_scripts_rely_on",
        "horovod:__version__": ALIAS + "alias_and_rueda_share_their_objects",
        "horovod.runner:run": ALIAS + "run_has_the_signature_scripts_rely_on",
        "horovod.runner.launch:main": ALIAS + "horovodrun_becomes_rueda_run",
        "horovod.runner.launch:run_commandline": ALIAS + "horovodrun_becomes_rueda_run",
        "horovod.runner.util.threads:in_thread": ALIAS + "thread_helpers",
        "horovod.runner.util.threads:on_event": ALIAS + "thread_helpers",
        "horovod.runner.util.threads:execute_function_multithreaded": ALIAS + "thread_helpers",
    }
)
