"""The last set: looked at once; but for one false STOP no row was written from it. More than half
of it is not torch.
"""

from aorta.attribution import RankEnd
from benchmarks.faults.field import RESTART, STOP, UNKNOWN, Excerpt, steps, traceback

_S = "/venv/lib/python3.11/site-packages"


def _under(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{row}\n" for row in text.splitlines())


EXCERPTS: tuple[Excerpt, ...] = (
    # ---- JAX ----
    Excerpt("jax_reshape", "JAX user's mistake", "shape_mismatch", STOP,
        traceback("TypeError: cannot reshape array of shape (8, 128, 768) (size 786432) into "
                  "shape (8, 128, 12, 32) (size 393216)", "/r/train.py:main:step(s, b)", "/r/attn.py:__call__:q = q.reshape(b, t, h, d)")),
    Excerpt("jax_shard_divisible", "JAX: a batch that does not divide", "bad_config", STOP,
        traceback("ValueError: One of pjit arguments was given the sharding of "
                  "NamedSharding(mesh=Mesh('data': 8)), which implies that the global size of its "
                  "dimension 0 should be divisible by 8, but it is equal to 12 (full shape: (12, "
                  "512))", "/r/train.py:main:step(s, b)")),
    Excerpt("jax_task_died", "JAX: another task died", "network_loss", RESTART,
        steps(300, 330, "I0611 08:00:0{n}.1 71 train.py:88] step {n} loss {loss:.3f}") + "E0611 08:00:09.123456 71 coordination_service_agent.cc:332] Polled an error from coordination service (this can be an error from this or another task).\nF0611 08:00:09.123460 71 client.h:80] Terminating process because the JAX distributed service detected fatal errors. absl::Status: UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly.\n", root_ranks=(2,)),
    Excerpt("jax_illegal", "JAX on GPU: a kernel outside its memory", "illegal_access", RESTART,
        "2026-06-11 08:00:01.123456: E external/xla/xla/stream_executor/cuda/cuda_driver.cc:1108] "
        "could not synchronize on CUDA context: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory "
        "access was encountered :: *** Begin stack trace ***\n2026-06-11 08:00:01.123499: F "
        "external/xla/xla/service/gpu/gpu_executable.cc:88] Non-OK-status: "
        "stream->BlockHostUntilDone() status: INTERNAL\nAborted (core dumped)\n"),
    Excerpt("jax_missing_module", "JAX on a TPU pod, one line a host", "import_error", STOP,
        "".join(_under(f"2026-06-11 08:00:01 10.9.0.{h} [{h}] ", traceback("ModuleNotFoundError: "
                                                                           "No module named 'grain'", "/r/train.py:<module>:import grain.python as pygrain")) for h in range(3))),
    Excerpt("jax_gcs_read", "JAX: a bucket that throttles", "storage_fault", RESTART,
        traceback("ValueError: UNAVAILABLE: Error reading \"params/kernel/.zarray\" in OCDBT "
                  "database at gs://b/ckpt/900/: HTTP response code: 429 with rateLimitExceeded "
                  "[tensorstore_spec='gcs']", "/r/train.py:main:restore(900)")),
    Excerpt("t5x_gin", "T5X: gin does not know the name", "bad_config", STOP,
        traceback("ValueError: No configurable matching 'train_scrpt.train'.\n  In file "
                  "\"/r/configs/base.gin\", line 14", "/r/t5x/train.py:<module>:gin_utils.run(main)", f"{_S}/gin/config.py:parse_config:raise ValueError")),
    Excerpt("jax_cpu_oom", "a JAX host out of memory", "host_oom", RESTART,
        steps(5, 9) + "Killed\n", kernel="Jun 11 08:00:09 tpu-host-3 kernel: Memory cgroup out of "
                                         "memory: Killed process 912 (python3) "
                                         "total-vm:401234567kB, anon-rss:390000000kB\n"),
    # ---- DeepSpeed, Megatron, NeMo, HF, Lightning ----
    Excerpt("ds_zero3_ckpt", "DeepSpeed: a checkpoint of another world size", "checkpoint_mismatch", STOP,
        "[2026-06-11 08:00:01,123] [INFO] [engine.py:2710:_get_all_zero_checkpoint_state_dicts] "
        "loading\n" + traceback("deepspeed.runtime.zero.utils.ZeRORuntimeException: The "
                                "checkpoint being loaded used a DP world size of 16 but the "
                                "current world size is 8. Automatic adjustment of ZeRO's "
                                "optimizer state partitioning with a new world size is not "
                                "currently supported.", "/r/t.py:main:engine.load_checkpoint(d)", f"{_S}/deepspeed/runtime/engine.py:_load_zero_checkpoint:raise ZeRORuntimeException(")),
    Excerpt("ds_config_json", "DeepSpeed: a config that is not JSON", "bad_config", STOP,
        traceback("json.decoder.JSONDecodeError: Expecting ',' delimiter: line 12 column 5 (char "
                  "301)", "/r/t.py:main:deepspeed.initialize(config=args.ds_config)", f"{_S}/deepspeed/runtime/config.py:__init__:self._param_dict = json.load(f)")),
    Excerpt("ds_unsupported_opt", "DeepSpeed: an optimizer that it does not take", "bad_config", STOP,
        traceback("deepspeed.runtime.zero.utils.ZeRORuntimeException: You are using ZeRO-Offload "
                  "with a client provided optimizer (<class 'torch.optim.adamw.AdamW'>) which in "
                  "most cases will yield poor performance. Please either use "
                  "deepspeed.ops.adam.DeepSpeedCPUAdam or set an optimizer in your ds-config", "/r/t.py:main:deepspeed.initialize(model=m)", f"{_S}/deepspeed/runtime/engine.py:_configure_optimizer:raise ZeRORuntimeException(")),
    Excerpt("ds_minus_eleven", "DeepSpeed: a crash", "segfault", RESTART,
        "[2026-06-11 08:26:05,876] [INFO] [launch.py:318:sigkill_handler] Killing subprocess "
        "94984\n[2026-06-11 08:26:05,999] [ERROR] [launch.py:324:sigkill_handler] "
        "['/venv/bin/python3.10', '-u', 't.py', '--local_rank=1', '--deepspeed', 'ds.json'] exits "
        "with return code = -11\n"),
    Excerpt("megatron_vocab", "Megatron-LM: a tokenizer file", "missing_file", STOP,
        "> building GPT2BPETokenizer tokenizer ...\n" + _under("[rank0]: ", traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/gpt2-vocab.json'", "/r/pretrain_gpt.py:<module>:pretrain()", "/r/megatron/tokenizer.py:__init__:self.encoder = json.load(open(vocab_file))")) + _under("[rank1]: ", traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/gpt2-vocab.json'", "/r/pretrain_gpt.py:<module>:pretrain()", "/r/megatron/tokenizer.py:__init__:self.encoder = json.load(open(vocab_file))"))),
    Excerpt("megatron_seq", "Megatron-LM: sequence lengths", "bad_config", STOP,
        traceback("AssertionError: max-position-embeddings must be greater than or equal to "
                  "seq-length (4096 < 8192)", "/r/pretrain_gpt.py:<module>:pretrain()", "/r/megatron/training/arguments.py:validate_args:assert args.max_position_embeddings >= args.seq_length")),
    Excerpt("megatron_oom_late", "Megatron-LM: memory after thousands of iterations", "device_oom", RESTART,
        steps(7000, 7012, " iteration     {n}/  100000 | consumed samples:      3584000 | elapsed "
                          "time per iteration (ms): 1203.1 | learning rate: 1.2E-04 | global "
                          "batch size:   512 | lm loss: {loss:.5E} |") + _under("[rank13]: ", traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 5 has a total capacity of 79.33 GiB of which 1.02 GiB is free.", "/r/pretrain_gpt.py:train:loss_dicts = forward_backward_func()")), root_ranks=(13,)),
    Excerpt("nemo_ptl_oom", "NeMo: memory while the model is built", "device_oom", STOP,
        "[NeMo I 2026-06-11 08:00:01 megatron_init:234] Rank 0 has data parallel group: [0]\n" + traceback("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacity of 39.39 GiB of which 700.00 MiB is free.", "/r/gpt.py:main:model = MegatronGPTModel(cfg.model, trainer)", f"{_S}/nemo/models/gpt.py:build_model:self.model = get_model(provider)", f"{_S}/megatron/core/tensor_parallel/layers.py:__init__:torch.empty(n, m)")),
    Excerpt("hf_resume_rng", "HF Trainer: a resume that cannot be read", "checkpoint_corrupt", STOP,
        "Loading model from /out/checkpoint-1500.\n" + traceback("EOFError: Ran out of input", "/r/t.py:main:trainer.train(resume_from_checkpoint=True)", f"{_S}/transformers/trainer.py:_load_optimizer_and_scheduler:torch.load(os.path.join(ck, 'optimizer.pt'))", f"{_S}/torch/serialization.py:_legacy_load:magic_number = pickle_module.load(f)")),
    Excerpt("hf_bf16", "HF Trainer: a device without bf16", "bad_config", STOP,
        traceback("ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using "
                  "Ampere GPU with cuda>=11.0", "/r/t.py:main:args = "
                                                "parser.parse_args_into_dataclasses()", f"{_S}/transformers/training_args.py:__post_init__:raise ValueError(")),
    Excerpt("hf_long_input", "HF: positions beyond the table, on the device", "device_assert", RESTART,
        "  3%|▎         | 120/4000 [02:01<1:05:11,  "
        "1.01s/it]/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: "
        "block: [44,0,0], thread: [31,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n" + traceback("RuntimeError: CUDA error: device-side assert triggered", "/r/t.py:main:trainer.train()")),
    Excerpt("lightning_worker_exc", "Lightning: a record in a loader worker", "data_error", RESTART,
        "Epoch 1:  12%|█▏        | 14/115 [00:09<01:08,  1.48it/s, v_num=9]" + "Traceback (most recent call last):\n  File \"/r/t.py\", line 9, in <module>\n    trainer.fit(m)\nKeyError: Caught KeyError in DataLoader worker process 3.\nOriginal Traceback (most recent call last):\n  File \"/r/d.py\", line 30, in __getitem__\n    return row['caption']\nKeyError: 'caption'\n"),
    Excerpt("trl_template", "TRL: a tokenizer without a template", "user_exception", RESTART,
        traceback("ValueError: Cannot use chat template functions because tokenizer.chat_template "
                  "is not set and no template argument was passed!", "/r/t.py:main:tok.apply_chat_template(m)")),
    # ---- Ray ----
    Excerpt("ray_train_rank_oom", "Ray Train: one worker out of device memory", "device_oom", RESTART,
        "(TrainController pid=70) - (node_id=a1, ip=10.9.0.4, pid=911) world_rank=0, "
        "local_rank=0, node_rank=0\n(TrainController pid=70) - (node_id=a2, ip=10.9.0.5, pid=812) "
        "world_rank=1, local_rank=0, node_rank=1\n"
         "(RayTrainWorker pid=911, ip=10.9.0.4) step 55 loss 0.4\n" + _under("(RayTrainWorker pid=812, ip=10.9.0.5) ", traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "/r/t.py:train_loop:loss.backward()")), root_ranks=(1,)),
    Excerpt("ray_pip_env", "Ray: a runtime environment that cannot be made", "bad_config", RESTART,
        "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.\nCould not "
        "create the actor because its associated runtime env failed to be created.\nERROR: No "
        "matching distribution found for flash-attn==99.1\n"),
    Excerpt("ray_sigkill", "Ray: a worker gone", "killed", RESTART,
        steps(20, 40, "(RayTrainWorker pid=812) step {n} loss {loss:.2f}") + "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker. Worker PID: 812 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.\n"),
    Excerpt("ray_disk", "Ray: spilling to a full disk", "disk_full", STOP,
        "(raylet) [2026-06-11 08:00:01,123 E 71 90] (raylet) file_system_monitor.cc:116: "
        "/tmp/ray/session is over 95% full, available space: 1203765248; capacity: 107361579008. "
        "Object creation will fail if spilling is required.\n" + traceback("OSError: [Errno 28] "
                                                                           "No space left on device", "/r/t.py:main:ray.put(x)")),
    # ---- Slurm ----
    Excerpt("slurm_py_exception", "srun --label: one rank's mistake in the data", "user_exception", RESTART,
        steps(1, 30, "0: step {n} loss {loss:.2f}") + _under("5: ", traceback("IndexError: list index out of range", "/r/t.py:main:train()", "/r/t.py:train:tok = table[i]")) + "srun: error: c5: task 5: Exited with exit code 1\nsrun: Terminating StepId=31.0\n0: slurmstepd: error: *** STEP 31.0 ON c1 CANCELLED AT 2026-06-11T08:00:01 ***\nsrun: error: c1: tasks 0-4: Terminated\n", root_ranks=(5,)),
    Excerpt("slurm_sigkill_one", "srun: one task killed, nobody says why", "killed", RESTART,
        steps(1, 30) + "srun: error: c7: task 12: Killed\nsrun: Terminating "
                       "StepId=32.0\nslurmstepd: error: *** STEP 32.0 ON c1 CANCELLED AT "
                       "2026-06-11T08:00:01 ***\nsrun: error: c1: tasks 0-11,13-15: Terminated\n", root_ranks=(12,)),
    Excerpt("slurm_preempt", "a higher partition takes the nodes", "preempted", RESTART,
        steps(1, 30) + "slurmstepd: error: *** STEP 33.0 ON c1 CANCELLED AT 2026-06-11T08:00:01 "
                       "DUE TO PREEMPTION ***\nslurmstepd: error: *** JOB 33 ON c1 CANCELLED AT "
                       "2026-06-11T08:00:01 DUE TO PREEMPTION ***\nsrun: error: c1: tasks 0-7: "
                       "Terminated\n"),
    Excerpt("slurm_bus", "srun: a bus error", "segfault", RESTART,
        steps(1, 30) + "srun: error: c7: task 3: Bus error (core dumped)\nsrun: Terminating "
                       "StepId=34.0\n", root_ranks=(3,)),
    Excerpt("slurm_launch_dir", "a batch script in a directory that is gone", "missing_file", STOP,
        "slurmstepd: error: couldn't chdir to `/home/u/exp9': No such file or directory: going to "
        "/tmp instead\npython: can't open file '/tmp/train.py': [Errno 2] No such file or "
        "directory\n"),
    Excerpt("slurm_ctl", "a controller that cannot be reached", "network_loss", RESTART,
        "srun: error: Unable to allocate resources: Unable to contact slurm controller (connect "
        "failure)\n"),
    # ---- Kubernetes ----
    Excerpt("k8s_logs_nccl", "kubectl logs --prefix --timestamps: a rank behind", "collective_timeout", RESTART,
        "".join(f"[pod/job-{r}/main] 2026-06-11T08:00:01.123456789Z [rank{r}]:[E611 08:00:01.1 "
                f"ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation "
                "timeout: WorkNCCL(SeqNum=88, OpType=BROADCAST, NumelIn=4, NumelOut=4, "
                "Timeout(ms)=1800000) ran for 1800021 milliseconds before timing out.\n" for r in (0, 1, 3))),
    Excerpt("k8s_user_exit_1", "a pod's import error, then its events", "import_error", STOP,
        _under("[pod/train-master-0/pytorch] ", traceback("ImportError: cannot import name "
                                                          "'LlamaFlashAttention2' from "
                                                          "'transformers.models.llama.modeling_llama'", "/r/t.py:<module>:from patch import apply", "/r/patch.py:<module>:from transformers.models.llama.modeling_llama import LlamaFlashAttention2"))
        + "Warning  BackOff  3s  kubelet  Back-off restarting failed container pytorch in pod "
          "train-master-0\n"),
    Excerpt("k8s_oom_state", "a pod's state as JSON", "host_oom", RESTART,
        "{\"containerID\":\"containerd://77\",\"exitCode\":137,\"finishedAt\":\"2026-06-11T08:00:01Z\",\"reason\":\"OOMKilled\",\"startedAt\":\"2026-06-11T07:00:01Z\"}\n"),
    Excerpt("k8s_drain", "a node that is drained", "preempted", RESTART,
        steps(1, 30) + "Normal  TaintManagerEviction  4s  taint-eviction-controller  Marking for "
                       "deletion Pod ml/train-worker-1\nNormal  Killing  4s  kubelet  Stopping "
                       "container pytorch\n"),
    Excerpt("k8s_config_missing", "a config map that is not there", "bad_config", STOP,
        "Warning  Failed  8s (x4 over 40s)  kubelet  Error: configmap \"train-config\" not "
        "found\nError: CreateContainerConfigError\n"),
    Excerpt("k8s_gpu_lost", "a device plugin reports a device", "hardware_fault", RESTART,
        steps(1, 30) + "I0611 08:00:01.123456 1 health.go:159] Marking device GPU-77 as "
                       "unhealthy: XidCriticalError: Xid=79 on Device=GPU-77, the device will go "
                       "unhealthy.\n" + traceback("RuntimeError: CUDA error: unknown error", "/r/t.py:main:loss.item()")),
    # ---- ROCm, drivers, links ----
    Excerpt("rocm_rccl_timeout", "RCCL: a collective that never ends", "collective_timeout", RESTART,
        steps(1, 30) + "[rank2]:[E611 08:00:01.2 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog "
                       "caught collective operation timeout: WorkNCCL(SeqNum=12733, "
                       "OpType=REDUCE_SCATTER, NumelIn=8, NumelOut=1, Timeout(ms)=600000) ran for "
                       "600011 milliseconds before timing out.\n"),
    Excerpt("rocm_hsa_exception", "ROCm: a queue stopped by the hardware", "device_assert", RESTART,
        steps(1, 30) + ":0:rocdevice.cpp            :2724: 43421234 us: Callback: Queue 0x7f "
                       "aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation "
                       "resulted in a hardware exception. code: 0x1016\nAborted (core dumped)\n"),
    Excerpt("rocm_reset", "amdgpu: a reset beside a lost device", "hardware_fault", RESTART,
        steps(1, 30) + _under("[rank3]: ", traceback("RuntimeError: HIP error: an illegal memory "
                                                     "access was encountered", "/r/t.py:main:loss.item()")), kernel="Jun 11 08:00:01 mi-3 kernel: amdgpu 0000:83:00.0: amdgpu: ring sdma0 timeout, signaled seq=99, emitted seq=101\nJun 11 08:00:02 mi-3 kernel: amdgpu 0000:83:00.0: amdgpu: GPU reset begin!\n", root_ranks=(3,)),
    Excerpt("xid_48", "a double bit error", "hardware_fault", RESTART,
        steps(1, 30) + _under("[rank1]: ", traceback("torch.AcceleratorError: CUDA error: "
                                                     "uncorrectable ECC error encountered", "/r/t.py:main:loss.item()")), kernel="[  81.2] NVRM: Xid (PCI:0000:1b:00): 48, pid=812, name=python3, DBE (double bit error)\n", root_ranks=(1,)),
    Excerpt("xid_31_program", "a fault of the program in the kernel's log", "illegal_access", RESTART,
        steps(1, 30) + _under("[rank1]: ", traceback("torch.AcceleratorError: CUDA error: an "
                                                     "illegal memory access was encountered", "/r/t.py:main:loss.item()")), kernel="[  81.2] NVRM: Xid (PCI:0000:1b:00): 31, pid=812, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS\n", root_ranks=(1,)),
    Excerpt("ib_port", "a port that goes down, told by NCCL", "link_fault", RESTART,
        steps(1, 30) + "c5:812:903 [4] NCCL WARN NET/IB : mlx5_4:1 Got async event : port "
                       "error\nc5:812:903 [4] transport/net_ib.cc:1300 NCCL WARN NET/IB : Got "
                       "completion from peer 10.9.1.7<40123> with status=12 opcode=0 len=0 vendor "
                       "err 129 (Send)\n"),
    Excerpt("driver_old", "a driver older than the runtime", "bad_config", RESTART,
        traceback("RuntimeError: The NVIDIA driver on your system is too old (found version "
                  "11040). Please update your GPU driver.", "/r/t.py:main:torch.cuda.init()")),
    Excerpt("no_device", "a host whose devices are gone", "hardware_fault", RESTART,
        traceback("RuntimeError: CUDA error: no CUDA-capable device is detected", "/r/t.py:main:torch.cuda.set_device(0)")),
    # ---- storage ----
    Excerpt("ceph_eio", "CephFS: an I/O error in a loader", "storage_fault", RESTART,
        steps(9000, 9020) + "Traceback (most recent call last):\n  File \"/r/t.py\", line 9, in "
                            "<module>\n    for b in loader:\nOSError: Caught OSError in "
                            "DataLoader worker process 2.\nOriginal Traceback (most recent call "
                            "last):\n  File \"/r/d.py\", line 30, in __getitem__\n    return "
                            "f.read(n)\nOSError: [Errno 5] Input/output error\n"),
    Excerpt("nfs_kernel", "NFS that does not answer, told by the kernel", "storage_fault", RESTART,
        steps(9000, 9020) + traceback("RuntimeError: could not read batch 9021 from the store", "/r/d.py:read:raise RuntimeError"), kernel="Jun 11 08:00:01 c5 kernel: nfs: server filer-2 not responding, timed out\n"),
    Excerpt("disk_full_torch", "a checkpoint that does not fit", "disk_full", STOP,
        steps(1, 40) + traceback("RuntimeError: [enforce fail at inline_container.cc:603] . "
                                 "unexpected pos 1203765248 vs 1203765136", "/r/t.py:main:torch.save(sd, p)", f"{_S}/torch/serialization.py:__exit__:self.file_like.write_end_of_file()")),
    # ---- torch ----
    Excerpt("tail_only_bad_flag", "a service's tail: two lines", "bad_arguments", STOP,
        "train.py: error: argument --dtype: invalid choice: 'fp8' (choose from 'fp16', 'bf16', "
        "'fp32')\n"),
    Excerpt("tail_only_size", "a service's tail: the message alone", "checkpoint_mismatch", STOP,
        "RuntimeError: Error(s) in loading state_dict for GPT:\n\tsize mismatch for wte.weight: "
        "copying a param with shape torch.Size([50257, 768]) from checkpoint, the shape in "
        "current model is torch.Size([50304, 768]).\n"),
    Excerpt("ddp_unused", "DDP: parameters without gradients", "user_exception", RESTART,
        steps(1, 2) + traceback("RuntimeError: Expected to have finished reduction in the prior "
                                "iteration before starting a new one. This error indicates that "
                                "your module has parameters that were not used in producing "
                                "loss.", "/r/t.py:main:out = net(x)")),
    Excerpt("elastic_table_segv", "torchrun: rank 9 on the second host", "segfault", RESTART,
        steps(1, 30) + traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", f"{_S}/torch/distributed/launcher/api.py:launch_agent:raise ChildFailedError(")
        + "t.py FAILED\nFailures:\n[1]:\n  time      : 2026-06-11_08:00:04\n  host      : c2\n  "
          "rank      : 10 (local_rank: 2)\n  exitcode  : -15 (pid: 815)\n  error_file: <N/A>\n  "
          "traceback : Signal 15 (SIGTERM) received by PID 815\nRoot Cause (first observed "
          "failure):\n[0]:\n  time      : 2026-06-11_08:00:01\n  host      : c2\n  rank      : 9 "
          "(local_rank: 1)\n  exitcode  : -11 (pid: 814)\n  error_file: <N/A>\n  traceback : "
          "Signal 11 (SIGSEGV) received by PID 814\n", root_ranks=(9,)),
    Excerpt("two_deaths", "two exceptions, the launcher knows which came first", "data_error", RESTART,
        ranks={0: steps(1, 40) + traceback("RuntimeError: Connection reset by peer", "/r/t.py:main:dist.all_reduce(x)"), 1: steps(1, 40) + traceback("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", "/r/t.py:main:for b in loader:", "/r/d.py:__iter__:line = f.readline()")},
        root_ranks=(1,), ends=(RankEnd(1, exit_code=1, time=10.0), RankEnd(0, exit_code=1, time=14.0))),
    Excerpt("hung_then_term", "a rank that stood still", "hang", RESTART,
        ranks={0: steps(1, 40), 1: steps(1, 40), 2: steps(1, 38)}, root_ranks=(2,), ends=(RankEnd(2, hung=True), RankEnd(0, signal=15), RankEnd(1, signal=15))),
    Excerpt("sigabrt_rank", "a rank aborts, the others are ended", "abort", RESTART,
        ranks={0: steps(1, 40), 1: steps(1, 40) + "double free or corruption (!prev)\n"}, root_ranks=(1,), ends=(RankEnd(1, signal=6, time=1.0), RankEnd(0, signal=15, time=2.0))),
    Excerpt("import_one_of_four", "one rank's cache of modules is broken", "import_error", RESTART,
        ranks={0: steps(1, 3), 1: steps(1, 3), 2: traceback("ImportError: libcudart.so.12: cannot "
                                                            "open shared object file: No such "
                                                            "file or directory", "/r/t.py:<module>:import ext"), 3: steps(1, 3)}, root_ranks=(2,), ends=(RankEnd(2, exit_code=1, time=1.0), RankEnd(0, signal=15, time=30.0), RankEnd(1, signal=15, time=30.0), RankEnd(3, signal=15, time=30.0))),
    Excerpt("assert_late", "an assertion of the program after an hour", "assertion", RESTART,
        steps(3000, 3040) + traceback("AssertionError: ring buffer wrapped before it was read", "/r/t.py:main:buf.push(x)", "/r/buf.py:push:assert self.head != self.tail")),
    Excerpt("nothing_at_all", "a log that simply ends", "unknown", UNKNOWN, steps(3000, 3040)),
    Excerpt("warnings_only", "warnings, and then it ends", "unknown", UNKNOWN,
        "UserWarning: The given NumPy array is not writable\nWARNING: retrying upload after "
        "ConnectionError: Connection reset by peer\n" + steps(1, 40) + "WARNING: retrying upload "
                                                                       "after ConnectionError: "
                                                                       "Connection reset by "
                                                                       "peer\n" + steps(41, 60)),
    Excerpt("mpi_rank_lost", "Open MPI: a rank left without finalising", "unknown", UNKNOWN,
        steps(1, 30) + "--------------------------------------------------------------------------\nmpirun has exited due to process rank 2 with PID 812 on node c5 exiting improperly. There are three reasons this could occur:\n1. this process did not call \"init\" before exiting.\n--------------------------------------------------------------------------\n"),
    Excerpt("tf_config_cluster", "TensorFlow: a cluster that is written wrongly", "bad_config", STOP,
        traceback("json.decoder.JSONDecodeError: Expecting property name enclosed in double "
                  "quotes: line 1 column 2 (char 1)", "/r/t.py:main:strategy = make()", "/r/t.py:make:tf_config = json.loads(os.environ['TF_CONFIG'])")),
    Excerpt("hf_dataset_offline", "HF datasets: the hub does not answer", "network_loss", RESTART,
        traceback("requests.exceptions.ReadTimeout: "
                  "(ReadTimeoutError(\"HTTPSConnectionPool(host='hub.invalid', port=443): Read "
                  "timed out. (read timeout=10)\"), '(Request ID: 77)')", "/r/t.py:main:load_dataset('x/y')")),
    Excerpt("docker_oom_run", "docker run with a memory limit", "killed", RESTART,
        steps(1, 12) + "entrypoint.sh: line 9:    12 Killed                  python train.py\n"),
)  # fmt: skip
