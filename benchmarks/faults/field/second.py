"""The second set: harder shapes (cut, interleaved, misleading), measured once, then learned
from.
"""

from aorta.attribution import RankEnd
from benchmarks.faults.field import RESTART, STOP, UNKNOWN, Excerpt, steps, traceback

_SITE = "/usr/lib/python3/dist-packages"


def _under(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{row}\n" for row in text.splitlines())


def _mixed(*texts: str) -> str:
    """The lines of several processes in turn."""
    rows = [text.splitlines() for text in texts]
    return "".join(
        f"{own[at]}\n" for at in range(max(map(len, rows))) for own in rows if at < len(own)
    )


_LOST = traceback(
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[10.0.0.4]:31220",
    "/w/t.py:main:dist.all_reduce(x)",
)

EXCERPTS: tuple[Excerpt, ...] = (
    Excerpt("cut_import", "a service's tail: the head of the traceback is gone", "import_error", STOP,
        "    from apex.normalization import FusedLayerNorm\nModuleNotFoundError: No module named "
        "'apex'\n"),
    Excerpt("cut_frames_checkpoint", "a tail that begins among frames", "checkpoint_mismatch", STOP,
        '  File "/w/engine.py", line 310, in load_checkpoint\n    '
        'self.optimizer.load_state_dict(sd["optimizer"])\n           ~~^^^^^^^^^^^^^\nKeyError: '
        '\'optimizer\'\n'),
    Excerpt("wrapped_watchdog_ecc", "a watchdog quotes what ended it", "hardware_fault", RESTART,
        steps(10, 40) + "[rank6]:[E815 20:51:27.10 ProcessGroupNCCL.cpp:1554] [PG 0 (default_pg) "
                        "Rank 6] Process group watchdog thread terminated with exception: CUDA "
                        "error: uncorrectable ECC error encountered\nCompile with "
                        "`TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
        "[rank6]:[E815 20:51:27.20 ProcessGroupNCCL.cpp:1560] terminate called after throwing an "
        "instance of 'c10::DistBackendError'\n", root_ranks=(6,)),
    Excerpt("interleaved_ranks", "two ranks' tracebacks line by line under tags", "user_exception", RESTART,
        _mixed(_under("[rank1]: ", traceback("ValueError: too many values to unpack (expected 2)", "/w/t.py:main:loop()", "/w/t.py:loop:a, b = net(x)")), _under("[rank0]: ", _LOST)), root_ranks=(1,)),
    Excerpt("interleaved_mpi", "mpirun tags, one rank out of host memory", "host_oom", RESTART,
        _mixed(_under("[1,2]<stderr>:", traceback("MemoryError: Unable to allocate 37.3 GiB for "
                                                  "an array with shape (100000, 50000) and data "
                                                  "type float64", "/w/t.py:main:cov = np.cov(x)")), _under("[1,0]<stderr>:", _LOST)), root_ranks=(2,)),
    Excerpt("json_lines", "a structured logger with the stack in a field", "disk_full", STOP,
        '{"ts": "2026-04-01T09:00:01Z", "level": "info", "msg": "step 40 loss 0.4", "rank": '
        '0}\n{"ts": "2026-04-01T09:00:02Z", "level": "error", "msg": "checkpoint failed", "rank": '
        '0, "exc_info": "Traceback (most recent call last):\\n  File \\"/w/ck.py\\", line 9, in '
        'save\\n    torch.save(sd, f)\\nOSError: [Errno 28] No space left on device"}\n', root_ranks=(0,)),
    Excerpt("warn_then_oom", "harmless warnings of other failures first", "device_oom", RESTART,
        "WARNING: apex is not installed: No module named 'apex'\nUserWarning: Could not load "
        "dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared object "
        "file\n" + steps(1, 30)
        + traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", "/w/t.py:main:loss.backward()")),
    Excerpt("retry_storm", "retries against a store, then the real end", "assertion", RESTART,
        "".join(f"2026-04-01 09:00:{n:02d},000 WARNING storage: attempt {n} failed: "
                "ConnectionError: Connection refused, retrying\n" for n in range(8)) + steps(1, 30) + traceback("AssertionError: loss mask is empty", "/w/t.py:main:assert mask.any()")),
    Excerpt("old_xid_job_fine", "an Xid of last week beside today's shape error", "shape_mismatch", STOP,
        "2026-04-01 09:00:01,000 INFO starting\n" + traceback("RuntimeError: mat1 and mat2 shapes "
                                                              "cannot be multiplied (32x512 and "
                                                              "768x768)", "/w/t.py:main:net(x)"), kernel="Mar 24 03:12:44 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 63, pid='<unknown>', Row remapper\n"),
    Excerpt("resume_crash_further", "a crash while it goes on well", "segfault", RESTART,
        "resuming from step 4000\n" + steps(4001, 4040) + "Segmentation fault (core dumped)\n"),
    Excerpt("sigint_launcher", "Ctrl-C at torchrun", "cancelled", STOP,
        steps(1, 20) + "^CW0401 09:00:05.000000 4242 "
                       "torch/distributed/elastic/agent/server/api.py:688] Received "
                       "Signals.SIGINT death signal, shutting down workers\n" + traceback("KeyboardInterrupt", "/w/t.py:main:loss.backward()") + traceback("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 2", f"{_SITE}/torch/distributed/run.py:main:run(args)")),
    Excerpt("ctrl_c_worker_only", "KeyboardInterrupt that a watchdog sent to one rank of four", "cancelled", STOP,
        traceback("KeyboardInterrupt", "/w/t.py:main:x = next(it)")),
    Excerpt("accelerate_wrap", "accelerate launch around a user's mistake", "bad_config", STOP,
        traceback("ValueError: Unknown scheduler: cosine_with_restart", "/w/t.py:main:get_scheduler(cfg.sched)", "/w/sched.py:get_scheduler:raise ValueError(f'Unknown scheduler: {name}')")
        + traceback("subprocess.CalledProcessError: Command '['/usr/bin/python3', 't.py']' "
                    "returned non-zero exit status 1.", f"{_SITE}/accelerate/commands/accelerate_cli.py:main:args.func(args)", f"{_SITE}/accelerate/commands/launch.py:simple_launcher:raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)")),
    Excerpt("spawn_sigsegv", "mp.spawn: a child crashed", "segfault", RESTART,
        steps(1, 5) + traceback("torch.multiprocessing.spawn.ProcessExitedException: process 2 "
                                "terminated with signal SIGSEGV", f"{_SITE}/torch/multiprocessing/spawn.py:join:raise ProcessExitedException("), root_ranks=(2,)),
    Excerpt("tf_style_oom", "TensorFlow: allocator's report", "device_oom", RESTART,
        "Epoch 3/50\n 117/1875 [>.............................] - ETA: 1:02 - loss: "
        "0.61\n2026-04-01 09:00:05.123456: W tensorflow/core/framework/op_kernel.cc:1818] "
        "OP_REQUIRES failed at conv_ops.cc:684 : RESOURCE_EXHAUSTED: OOM when allocating tensor "
        "with shape[64,512,64,64]\n"
        + traceback("tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph "
                    "execution error:", "/w/t.py:main:model.fit(ds)")),
    Excerpt("tf_missing_shard", "TensorFlow: a file pattern that matches nothing", "missing_file", STOP,
        traceback("tensorflow.python.framework.errors_impl.NotFoundError: "
                  "/data/train-00001.tfrecord; No such file or directory [Op:IteratorGetNext]", "/w/t.py:main:for b in ds:")),
    Excerpt("horovod_stall", "Horovod: a stalled rank", "collective_timeout", RESTART,
        steps(1, 12, "[1,0]<stdout>:Iter {n}: loss {loss:.2f}") + "[1,0]<stderr>:[2026-04-01 "
                                                                  "09:00:05.1: W /tmp/horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. Missing ranks:\n[1,0]<stderr>:0: [allreduce.grad.3]\n[1,0]<stderr>:Stall inspector: Shutting down due to stalled ranks: 3\n", root_ranks=(3,)),
    Excerpt("mxnet_cuda", "MXNet: cudaMalloc", "device_oom", RESTART,
        traceback("mxnet.base.MXNetError: [09:00:05] src/storage/./pooled_storage_manager.h:161: "
                  "cudaMalloc retry failed: out of memory", "/w/t.py:main:loss.asnumpy()")),
    Excerpt("paddle_enforce", "PaddlePaddle: enforce not met", "shape_mismatch", STOP,
        traceback("ValueError: (InvalidArgument) Broadcast dimension mismatch. Operands could not "
                  "be broadcast together with the shape of X = [4, 8] and the shape of Y = [4, "
                  "7].", "/w/t.py:main:y = a + b")),
    Excerpt("megatron_dataset_prefix", "Megatron-LM: an index that is not there", "missing_file", STOP,
        " > building train, validation, and test datasets ...\n" + traceback("AssertionError: One "
                                                                             "or both of the .idx "
                                                                             "and .bin files cannot be found at the path prefix /data/my_text_document", "/w/pretrain.py:<module>:pretrain()", "/w/megatron/core/datasets/indexed_dataset.py:initialize:assert os.path.exists(idx)")),
    Excerpt("nemo_yaml", "NeMo: hydra cannot compose", "bad_config", STOP,
        "In 'megatron_gpt_config': Could not find 'optimm/adam'\n\nAvailable options in "
        "'optim':\n\tadam\n" + traceback("hydra.errors.MissingConfigException: In "
                                         "'megatron_gpt_config': Could not find 'optimm/adam'", f"{_SITE}/hydra/_internal/utils.py:run_and_report:raise ex")),
    Excerpt("lightning_ckpt_corrupt", "Lightning: a checkpoint cut short", "checkpoint_corrupt", STOP,
        "Restoring states from the checkpoint path at /ck/last.ckpt\n" + traceback("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "/w/t.py:main:trainer.fit(m, ckpt_path='last')", f"{_SITE}/torch/serialization.py:__init__:super().__init__(torch._C.PyTorchFileReader(f))")),
    Excerpt("safetensors_cut", "HF: a shard that was not downloaded whole", "checkpoint_corrupt", STOP,
        "Loading checkpoint shards:  50%|█████     | 1/2 [00:03<00:03,  3.1s/it]" + traceback("safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "/w/t.py:main:AutoModel.from_pretrained(p)", f"{_SITE}/transformers/modeling_utils.py:load_state_dict:with safe_open(f) as g:")),
    Excerpt("peft_mismatch", "PEFT: adapters of another base", "checkpoint_mismatch", STOP,
        traceback("RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM:\n\tsize "
                  "mismatch for base_model.model.lm_head.weight: copying a param with shape "
                  "torch.Size([32001, 4096]) from checkpoint", "/w/t.py:main:PeftModel.from_pretrained(m, p)")),
    Excerpt("bnb_no_cuda", "bitsandbytes: built without CUDA", "import_error", RESTART,
        "CUDA SETUP: Required library version not found: libbitsandbytes_cuda121.so.\n" + traceback("AttributeError: 'NoneType' object has no attribute 'cget_col_row_stats'", "/w/t.py:main:opt.step()")),
    Excerpt("flash_symbol", "flash-attn against another torch", "import_error", STOP,
        traceback("ImportError: /opt/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined "
                  "symbol: _ZN3c104cuda9SetDeviceEi", "/w/t.py:<module>:import flash_attn")),
    Excerpt("glibc", "a binary for a newer system", "import_error", STOP,
        traceback("ImportError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.35' not found "
                  "(required by /opt/x.so)", "/w/t.py:<module>:import x")),
    Excerpt("slurm_oom_task", "srun: out of memory on one task of eight", "host_oom", RESTART,
        steps(50, 80) + "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some "
                        "of the step tasks have been OOM Killed.\nsrun: error: n6156: task 5: Out "
                        "Of Memory\nsrun: Terminating StepId=11300781.0\nslurmstepd: error: *** "
                        "STEP 11300781.0 ON n6150 CANCELLED AT 2026-04-01T09:00:05 ***\nsrun: "
                        "error: n6150: tasks 0-4,6-7: Terminated\n", root_ranks=(5,)),
    Excerpt("srun_exit_1_no_words", "srun: a task left with 1, and nothing else is known", "unknown", UNKNOWN,
        steps(50, 80) + "srun: error: n3: task 7: Exited with exit code 1\nsrun: Terminating "
                        "StepId=9.0\nslurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT "
                        "2026-04-01T09:00:05 ***\n", root_ranks=(7,)),
    Excerpt("slurm_prolog", "a node whose prolog failed", "hardware_fault", RESTART,
        "slurmstepd: error: Prolog hook failed\nsrun: error: Task launch for StepId=9.0 failed on "
        "node n7: Job prolog failed\nsrun: error: Application launch failed: Job prolog failed\n"),
    Excerpt("pbs_walltime", "PBS: over its walltime", "time_limit", STOP,
        steps(50, 80) + "=>> PBS: job killed: walltime 86425 exceeded limit 86400\n"),
    Excerpt("lsf_memlimit", "LSF: over its memory", "host_oom", RESTART,
        steps(50, 80) + "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited "
                        "with exit code 137.\n"),
    Excerpt("k8s_sigterm", "a pod asked to leave", "killed", RESTART,
        steps(50, 80, "2026-04-01T09:00:05.123456789Z stdout F step {n} loss {loss:.2f}") + "2026-04-01T09:00:06.123456789Z stderr F [2026-04-01 09:00:06,123] torch.distributed.elastic.agent.server.api: [WARNING] Received 15 death signal, shutting down workers\n"),
    Excerpt("k8s_node_lost", "kubectl events: a node gone", "hardware_fault", RESTART,
        "9m   Warning   NodeNotReady   pod/train-worker-2   Node is not ready\n4m   Normal   "
        "TaintManagerEviction   pod/train-worker-2   Marking for deletion Pod "
        "train/train-worker-2\n"),
    Excerpt("k8s_pvc", "a volume that cannot be mounted", "storage_fault", RESTART,
        "Warning  FailedMount  2m (x9 over 20m)  kubelet  MountVolume.SetUp failed for volume "
        "\"pvc-77\" : mount failed: exit status 32 mount.nfs: Connection timed out\n"),
    Excerpt("gke_spot", "a spot node taken back", "preempted", RESTART,
        steps(50, 80) + "Pod was terminated in response to imminent node shutdown.\n"),
    Excerpt("ray_placement", "Ray: a GPU that nobody has", "bad_config", RESTART,
        "(autoscaler +30s) Error: No available node types can fulfill resource request {'GPU': "
        "16.0, 'CPU': 1.0}. Add suitable node types to this cluster to resolve this issue.\n"),
    Excerpt("ray_user_error_repeated", "Ray: the same error on all workers, folded", "bad_config", STOP,
        "(RayTrainWorker pid=4242, ip=10.0.0.7) KeyError: 'learning_rate' [repeated 7x across "
        "cluster]\n"
        "ray.exceptions.RayTaskError(KeyError): ray::_RayTrainWorker__execute.get_next() "
        "(pid=4242, ip=10.0.0.7)\n  File \"/w/t.py\", line 31, in train_loop\n    lr = "
        "config[\"learning_rate\"]\nKeyError: 'learning_rate'\n"),
    Excerpt("ray_gcs", "Ray: the head is gone", "network_loss", RESTART,
        "[2026-04-01 09:00:05,123 E 812 900] gcs_rpc_client.h:179: Failed to connect to GCS at "
        "address 10.0.0.2:6379 within 5 seconds.\n[2026-04-01 09:01:05,123 C 812 900] "
        "gcs_rpc_client.h:539:  Check failed: absl::ToInt64Seconds(absl::Now() - "
        "gcs_last_alive_time_) < 60 Failed to connect to GCS within 60 seconds. GCS may have been "
        "killed.\n"),
    Excerpt("jax_no_gpu", "JAX: a library without its device", "bad_config", RESTART,
        traceback("RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No "
                  "visible GPU devices. (you may need to uninstall the failing plugin package, or "
                  "set JAX_PLATFORMS=cpu to skip this backend.)", "/w/t.py:<module>:jax.devices()")),
    Excerpt("jax_tracer", "JAX: a traced value in a condition", "user_exception", RESTART,
        traceback("jax.errors.TracerBoolConversionError: Attempted boolean conversion of traced "
                  "array with shape bool[].", "/w/t.py:main:step(x)", "/w/t.py:step:if loss > 3:")),
    Excerpt("jax_barrier", "JAX: hosts that did not come to a barrier", "collective_timeout", RESTART,
        steps(50, 80) + traceback("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: "
                                  "Barrier timed out. Id: ckpt_save_400::0. This usually happens "
                                  "because a task triggered the barrier too early or too slowly. "
                                  "Please look at the task logs (both timed out and first task) "
                                  "to debug further.\n# of tasks that reached the barrier: "
                                  "31/32.\nThe first task at the barrier: "
                                  "/job:jax_worker/replica:0/task:4. Some timed out task "
                                  "names:\n/job:jax_worker/replica:0/task:17\n", "/w/t.py:main:mngr.save(step)"), root_ranks=(17,)),
    Excerpt("jax_nccl_init", "JAX on GPUs: NCCL cannot begin", "network_loss", RESTART,
        traceback("jaxlib.xla_extension.XlaRuntimeError: INTERNAL: NCCL operation "
                  "ncclCommInitRankConfig(&comm, nranks, id, rank, &config) failed: unhandled "
                  "system error (run with NCCL_DEBUG=INFO for details). Last NCCL warning(error) "
                  "log entry (may be unrelated) 'Call to connect to 10.0.0.9<41233> failed: "
                  "Connection refused'", "/w/t.py:main:f(x)")),
    Excerpt("pjrt_glog_epoch", "torch_xla: glog with the seconds of 1970", "hardware_fault", RESTART,
        " 50%|█████     | 1/2 [00:01<00:01,  1.21s/it]F0000 00:00:1716973077.466057    9049 "
        "pjrt_computation_client.cc:487] Non-OK-status: status status: INTERNAL: Accelerator "
        "device halted prematurely, perhaps due to an on-device check-failure. Node 0 halted "
        "unexpectedly at tag:pc TensorCoreSequencer:1204:0xf28\n"),
    Excerpt("rocm_no_binary", "ROCm: a build for other chips", "bad_config", RESTART,
        "\"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!\"\nAborted "
        "(core dumped)\n"),
    Excerpt("rccl_system", "RCCL: a peer that left", "network_loss", RESTART,
        "n2:4242:4299 [5] /long/path/rccl/src/misc/socket.cc:50 NCCL WARN socketProgress: "
        "Connection closed by remote peer n1<45231>\n" + traceback("torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.20.5", "/w/t.py:main:dist.barrier()")),
    Excerpt("amdgpu_ras", "amdgpu: an uncorrectable error in memory", "hardware_fault", RESTART,
        steps(1, 30) + "Memory access fault by GPU node-3 (Agent handle: 0x5) on address 0x7f. "
                       "Reason: Unknown.\n", kernel="[ 812.345678] amdgpu 0000:c1:00.0: amdgpu: 1 "
                                                    "uncorrectable hardware errors detected in "
                                                    "umc block\n"),
    Excerpt("nccl_shm", "a container without shared memory", "host_oom", RESTART,
        traceback("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, "
                  "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version "
                  "2.18.1\nncclSystemError: System call (e.g. socket, malloc) or external library "
                  "call failed or device error.\nLast error:\nError while creating shared memory "
                  "segment /dev/shm/nccl-7kRu4V (size 9637888)", "/w/t.py:main:dist.barrier()")),
    Excerpt("nccl_dup_gpu", "two ranks on one device", "bad_config", STOP,
        traceback("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, "
                  "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version "
                  "2.18.1\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
                  "library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA "
                  "device 1000", "/w/t.py:main:dist.barrier()")),
    Excerpt("store_lost", "rank 0 went first, without a word", "network_loss", RESTART,
        _under("[rank3]: ", traceback("torch.distributed.DistNetworkError: failed to recv, got 0 "
                                      "bytes", "/w/t.py:main:dist.barrier()")) + "[rank3]:[W401 09:00:05.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=15, addr=[n2]:60560, remote=[n1]:29500): failed to recv, got 0 bytes\n"),
    Excerpt("dataloader_killed", "a loader worker killed", "killed", RESTART,
        steps(1, 30) + traceback("RuntimeError: DataLoader worker (pid 22911) is killed by "
                                 "signal: Killed. ", "/w/t.py:main:for b in loader:")),
    Excerpt("parquet_torn", "a shard cut short, read in the loop", "data_error", RESTART,
        steps(1, 30) + traceback("pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in "
                                 "footer. Either the file is corrupted or this is not a parquet "
                                 "file.", "/w/t.py:main:for b in loader:", "/w/d.py:__iter__:t = "
                                                                           "pq.read_table(p)")),
    Excerpt("eio_kernel", "a disk that dies under a job", "storage_fault", RESTART,
        steps(1, 30) + traceback("RuntimeError: unable to read shard 12 of the training set", "/w/d.py:read:raise RuntimeError"), kernel="[812.3] blk_update_request: I/O error, dev nvme1n1, sector 12345 op 0x0:(READ)\n"),
    Excerpt("hang_watch", "launch ended a rank that was silent", "hang", RESTART,
        ranks={0: steps(1, 30), 1: steps(1, 30)}, root_ranks=(1,), ends=(RankEnd(1, hung=True), RankEnd(0, signal=15))),
    Excerpt("one_rank_permission", "one of four ranks may not read", "permission_denied", RESTART,
        ranks={0: _LOST, 1: _LOST, 2: traceback("PermissionError: [Errno 13] Permission denied: "
                                                "'/scratch/cache/lock'", "/w/t.py:main:open(lock)"), 3: _LOST}, root_ranks=(2,), ends=(RankEnd(2, exit_code=1, time=1.0), RankEnd(0, exit_code=1, time=9.0))),
    Excerpt("all_ranks_config", "every rank refuses the same setting", "bad_config", STOP,
        ranks={r: traceback("ValueError: global batch size (100) is not divisible by micro batch "
                            "size (8) times data parallel size (4)", "/w/t.py:main:setup(args)") for r in range(4)}, root_ranks=(0, 1, 2, 3), ends=tuple(RankEnd(r, exit_code=1) for r in range(4))),
    Excerpt("cuda_launch_blocking_hint", "an assert on the device, with its hints", "device_assert", RESTART,
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: "
        "[0,0,0], thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.\n" + traceback("RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.", "/w/t.py:main:loss.item()")),
    Excerpt("python_too_old", "a syntax the interpreter does not know", "syntax_error", STOP,
        '  File "/w/t.py", line 12\n    match kind:\n          ^\nSyntaxError: invalid syntax\n'),
    Excerpt("script_missing", "a script that is not there", "missing_file", STOP,
        "python: can't open file '/w/trian.py': [Errno 2] No such file or directory\n"),
    Excerpt("env_missing", "a variable that is not set", "bad_config", STOP,
        traceback("KeyError: 'WANDB_API_KEY'", "/w/t.py:main:key = os.environ['WANDB_API_KEY']", f"{_SITE}/os.py:__getitem__:raise KeyError(key) from None")),
    Excerpt("wandb_login", "a tracker that is not logged in", "bad_config", RESTART,
        traceback("wandb.errors.UsageError: api_key not configured (no-tty). call "
                  "wandb.login(key=[your_api_key])", "/w/t.py:main:wandb.init()")),
)  # fmt: skip
