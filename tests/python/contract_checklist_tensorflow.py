"""Every name of Horovod's TensorFlow interface and the test that shows it; see contract_checklist.py."""

WIRE = "multiprocess/test_wire_types.py::test_"
COLLECTIVES = "multiprocess/test_tensorflow_collectives.py::test_"
ERRORS = "multiprocess/test_tensorflow_errors.py::test_"
FUNCTIONS = "multiprocess/test_tensorflow_functions.py::test_"
GRADIENTS = "multiprocess/test_tensorflow_gradients.py::test_"
JOBS = "multiprocess/test_tensorflow_jobs.py::test_"
OPTIMIZER = "multiprocess/test_tensorflow_optimizer.py::test_"
FRONT_END = "python/test_tensorflow_front_end.py::test_"

LIFECYCLE = JOBS + "torch_and_tensorflow_share_one_engine"
QUERIES = FRONT_END + "query_functions_answer_without_init"
NUMBERS = COLLECTIVES + "numbers_are_read_when_the_operation_runs"
OBJECTS = FUNCTIONS + "objects_travel_eagerly_and_through_sessions"
VARIABLES = FUNCTIONS + "variables_become_roots_eagerly_and_in_graphs"
SETS = COLLECTIVES + "process_sets_run_collectives_among_members_only"
WEIGHTS = OPTIMIZER + "weights_equal_those_of_one_process_with_the_whole_batch"
FLIGHT_RECORD = "multiprocess/test_timeline.py::test_a_flight_record_is_written_without_a_timeline"

TENSORFLOW = {
    **{name: LIFECYCLE for name in ("init", "shutdown", "is_initialized", "size")},
    **{name: NUMBERS for name in ("rank", "local_rank", "local_size", "size_op", "rank_op", "local_rank_op")},
    **{name: NUMBERS for name in ("local_size_op", "process_set_included_op")},
    **{name: QUERIES for name in ("gloo_built", "gloo_enabled", "mpi_built", "mpi_enabled", "nccl_built")},
    **{
        name: QUERIES
        for name in (
            "cuda_built",
            "ddl_built",
            "ccl_built",
            "rocm_built",
            "sycl_built",
            "mpi_threads_supported",
        )
    },
    **{name: QUERIES for name in ("check_num_rank_power_of_2", "handle_average_backwards_compatibility")},
    **{name: SETS for name in ("ProcessSet", "add_process_set", "remove_process_set", "global_process_set")},
    **{name: FUNCTIONS + "topology_and_timeline" for name in ("cross_rank", "cross_size", "is_homogeneous")},
    **{name: FUNCTIONS + "topology_and_timeline" for name in ("start_timeline", "stop_timeline")},
    **{name: FLIGHT_RECORD for name in ("mark_step", "timed_input", "write_flight_record")},
    "metrics": "multiprocess/test_status.py::test_metrics_count_what_every_front_end_does",
    "Average": COLLECTIVES + "allreduce_averages_by_default_and_takes_factors",
    "Sum": COLLECTIVES + "allreduce_sums_every_type_and_shape_in_every_mode",
    "Adasum": COLLECTIVES + "adasum_adds_orthogonal_and_averages_parallel_vectors",
    "Min": COLLECTIVES + "allreduce_min_max_product_and_uneven_worlds",
    "Max": COLLECTIVES + "allreduce_min_max_product_and_uneven_worlds",
    "Product": COLLECTIVES + "allreduce_min_max_product_and_uneven_worlds",
    "HorovodInternalError": FRONT_END + "alias_and_rueda_share_their_objects",
    "Compression": COLLECTIVES + "compression_restores_the_type",
    "rescale_residuals": WIRE + "what_encoding_loses_comes_with_the_next_steps",
    "allreduce": COLLECTIVES + "allreduce_sums_every_type_and_shape_in_every_mode",
    "grouped_allreduce": COLLECTIVES + "grouped_allreduce_keeps_order_and_mixes_types_and_slices",
    "allgather": COLLECTIVES + "allgather_concatenates_uneven_rows_of_every_type",
    "grouped_allgather": COLLECTIVES + "grouped_allgather_returns_a_list",
    "broadcast": COLLECTIVES + "broadcast_from_every_root_and_type",
    "broadcast_": COLLECTIVES + "broadcast_in_place_writes_variables",
    "reducescatter": COLLECTIVES + "reducescatter_slices_rows_first_ranks_longer",
    "grouped_reducescatter": COLLECTIVES + "reducescatter_slices_rows_first_ranks_longer",
    "alltoall": COLLECTIVES + "alltoall_even_and_with_splits",
    "join": COLLECTIVES + "join_lets_uneven_ranks_finish_and_names_the_last",
    "barrier": COLLECTIVES + "barrier_holds_everyone_back",
    "broadcast_variables": VARIABLES,
    "broadcast_global_variables": VARIABLES,
    "broadcast_object": OBJECTS,
    "broadcast_object_fn": OBJECTS,
    "allgather_object": OBJECTS,
    "BroadcastGlobalVariablesHook": FUNCTIONS + "the_hook_broadcasts_after_the_session_is_made",
    "DistributedGradientTape": FUNCTIONS + "the_tape_averages_in_every_configuration",
    "PartialDistributedGradientTape": FUNCTIONS + "local_layers_keep_their_own_gradients",
    "DistributedOptimizer": WEIGHTS,
    "PartialDistributedOptimizer": OPTIMIZER + "arguments_of_optimizers_are_checked",
    "gpu_available": FRONT_END + "small_helpers",
    "vars_to_refs": FRONT_END + "small_helpers",
    "refs_to_vars": FRONT_END + "small_helpers",
    "SyncBatchNormalization": GRADIENTS + "sync_batch_norm_equals_batch_norm_over_the_whole_batch",
}

AGGREGATION = FRONT_END + "local_aggregation_helpers_sum_and_reduce_every_nth_time"

CHECKLIST = {f"rueda.tensorflow:{name}": test for name, test in TENSORFLOW.items()}
CHECKLIST.update({f"horovod.tensorflow:{name}": test for name, test in TENSORFLOW.items()})
CHECKLIST.update(
    {
        "horovod.tensorflow.mpi_ops:_basics": FRONT_END + "alias_and_rueda_share_their_objects",
        "horovod.tensorflow.mpi_ops:_allreduce": COLLECTIVES
        + "allreduce_averages_by_default_and_takes_factors",
        "horovod.tensorflow.mpi_ops:allgather": COLLECTIVES
        + "allgather_concatenates_uneven_rows_of_every_type",
        "horovod.tensorflow.mpi_ops:rank_op": NUMBERS,
        "horovod.tensorflow.functions:broadcast_object": OBJECTS,
        "horovod.tensorflow.functions:broadcast_variables": VARIABLES,
        "horovod.tensorflow.compression:Compressor": COLLECTIVES + "compression_restores_the_type",
        "horovod.tensorflow.util:vars_to_refs": FRONT_END + "small_helpers",
        "horovod.tensorflow.util:refs_to_vars": FRONT_END + "small_helpers",
        "horovod.tensorflow.gradient_aggregation:LocalGradientAggregationHelper": OPTIMIZER
        + "several_passes_are_summed_before_one_step",
        "horovod.tensorflow.gradient_aggregation_eager:LocalGradientAggregationHelperEager": AGGREGATION,
        "horovod.tensorflow.sync_batch_norm:SyncBatchNormalization": TENSORFLOW["SyncBatchNormalization"],
    }
)
