"""The third set: other frameworks, schedulers and devices than the two before; measured once, then
learned from.
"""

from aorta.attribution import RankEnd
from benchmarks.faults.field import RESTART, STOP, UNKNOWN, Excerpt, steps, traceback

_S = "/opt/venv/lib/python3.12/site-packages"


def _under(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{row}\n" for row in text.splitlines())


EXCERPTS: tuple[Excerpt, ...] = (
    # ---- not torch: JAX, TensorFlow, Paddle, MindSpore, others ----
    Excerpt("flax_param_shape", "Flax report", "shape_mismatch", STOP,
        traceback("flax.errors.ScopeParamShapeError: Initializer expected to generate shape (3, "
                  "3, 64, 128) but got shape (3, 3, 32, 128) instead for parameter \"kernel\" in "
                  "\"/conv1\".", "/w/main.py:main:state = create_state(rng)")),
    Excerpt("jax_pmap_oom", "JAX report, under a pod's prefix", "device_oom", RESTART,
        steps(200, 230, "[pod/jax-worker-1/main] step={n} loss={loss:.3f} steps/sec=1.1") + _under("[pod/jax-worker-1/main] ", traceback("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.", "/w/main.py:main:state, m = p_step(state, b)"))),
    Excerpt("jax_coordinator_refused", "JAX report: the coordinator is not there", "rendezvous_error", RESTART,
        "E0507 11:00:03.412345   91 coordination_service_agent.cc:100] failed to connect to all "
        "addresses; last error: UNKNOWN: ipv4:10.3.0.2:1234: Failed to connect to remote host: "
        "connect: Connection refused (111)\n"
        + traceback("jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: failed to connect to all "
                    "addresses; last error: UNKNOWN: ipv4:10.3.0.2:1234: Failed to connect to "
                    "remote host", "/w/main.py:main:jax.distributed.initialize(coord, n, i)")),
    Excerpt("jax_version", "JAX report: jaxlib of another day", "import_error", STOP,
        traceback("ImportError: cannot import name 'xla_pmap_p' from 'jax.interpreters.pxla' "
                  "(/opt/venv/lib/python3.12/site-packages/jax/interpreters/pxla.py)", "/w/main.py:<module>:import alpa")),
    Excerpt("orbax_missing", "Orbax report: a step that was never written", "missing_file", STOP,
        traceback("FileNotFoundError: No structure could be identified for the checkpoint at "
                  "gs://b/run/checkpoints/9000/default.", "/w/main.py:main:mngr.restore(9000)")),
    Excerpt("tf_ckpt_notfound", "TensorFlow: a checkpoint that is not there", "missing_file", STOP,
        traceback("tensorflow.python.framework.errors_impl.NotFoundError: Unsuccessful "
                  "TensorSliceReader constructor: Failed to find any matching files for "
                  "/ckpt/model-9000", "/w/main.py:main:ck.restore(p)")),
    Excerpt("tf_incompatible", "Keras: layers and data", "shape_mismatch", STOP,
        traceback("ValueError: Input 0 of layer \"dense\" is incompatible with the layer: "
                  "expected axis -1 of input shape to have value 784, but received input with "
                  "shape (32, 28)", "/w/main.py:main:model.fit(x, y)")),
    Excerpt("tf_dataloss", "TensorFlow: a record that is torn", "data_error", RESTART,
        " 310/1875 [===>..........................] - ETA: 41s - loss: 0.4012\n" + traceback("tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 1204912 [Op:IteratorGetNext]", "/w/main.py:main:model.fit(ds)")),
    Excerpt("tf_cudnn", "TensorFlow: cuDNN cannot begin", "device_oom", RESTART,
        "2026-05-07 11:00:03.412345: E tensorflow/stream_executor/cuda/cuda_dnn.cc:377] Loaded "
        "cuDNN: could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n2026-05-07 "
        "11:00:03.412399: E tensorflow/stream_executor/cuda/cuda_driver.cc:1163] failed to "
        "allocate 7.61G (8170504192 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"),
    Excerpt("paddle_oom", "PaddlePaddle: out of device memory", "device_oom", RESTART,
        steps(1, 20, "[2026/05/07 11:00:03] root INFO: epoch: [1/90], iter: {n}, loss: "
                     "{loss:.3f}") + "SystemError: (Fatal) Operator conv2d raises a "
                                     "paddle::memory::allocation::BadAlloc "
                                     "exception.\nResourceExhaustedError: Out of memory error on "
                                     "GPU 0. Cannot allocate 784.000000MB memory on GPU 0, 15.7GB "
                                     "memory has been allocated.\n"),
    Excerpt("mindspore_npu", "MindSpore on Ascend: a device that is not healthy", "hardware_fault", RESTART,
        "[ERROR] DEVICE(812,ffff,python):2026-05-07-11:00:03.412.345 [ascend_device.cc:99] Call "
        "rtSetDevice failed, device 3 is unhealthy, error code 507033\n" + traceback("RuntimeError: Device 3 is unhealthy and cannot be used", "/w/main.py:main:ms.set_context(device_id=3)")),
    Excerpt("mxnet_kvstore", "MXNet: a parameter server that left", "network_loss", RESTART,
        steps(1, 20, "Epoch[2] Batch [{n}] Speed: 812.1 samples/sec accuracy=0.71") + "[11:00:03] src/van.cc:291: Failed to connect to scheduler 10.3.0.2:9091, connection refused, giving up\n"),
    Excerpt("rust_panic", "a tokenizer in Rust panics", "abort", RESTART,
        "thread '<unnamed>' panicked at 'index out of bounds: the len is 4 but the index is 4', "
        "tokenizers-lib/src/models/bpe/model.rs:512:13\nnote: run with `RUST_BACKTRACE=1` "
        "environment variable to display a backtrace\n"),
    Excerpt("julia_segv", "a Julia trainer", "segfault", RESTART,
        steps(1, 9, "epoch 1 step {n} loss {loss:.2f}") + "\nsignal (11.1): Segmentation "
                                                          "fault\nin expression starting at "
                                                          "/w/train.jl:52\nunknown function (ip: "
                                                          "0x7f2a)\n"),
    Excerpt("java_oom", "Spark's executor before a trainer", "host_oom", RESTART,
        "26/05/07 11:00:03 ERROR Executor: Exception in task 3.0 in stage 12.0 (TID "
        "91)\njava.lang.OutOfMemoryError: Java heap space\n\tat "
        "java.util.Arrays.copyOf(Arrays.java:3332)\n"),
    Excerpt("cpp_bad_alloc", "a C++ trainer", "host_oom", RESTART,
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
        "std::bad_alloc\nAborted (core dumped)\n"),
    Excerpt("cpp_filesystem", "a C++ trainer and a path", "missing_file", STOP,
        "terminate called after throwing an instance of 'std::filesystem::filesystem_error'\n  "
        "what():  filesystem error: cannot open directory: No such file or directory "
        "[/data/shards]\nAborted (core dumped)\n"),
    # ---- Ray, Dask, cloud services ----
    Excerpt("ray_actor_init", "Ray: an actor whose constructor fails", "missing_file", STOP,
        "ray.exceptions.RayActorError: The actor died because of an error raised in its creation "
        "task, ray::RewardWorker.__init__() (pid=812, ip=10.3.0.4)\n  File \"/w/workers.py\", "
        "line 77, in __init__\n    self.tok = load(path)\nFileNotFoundError: [Errno 2] No such "
        "file or directory: '/models/reward/tokenizer.json'\n"),
    Excerpt("ray_oom_task", "Ray: a task killed for memory", "host_oom", RESTART,
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
        "memory.\nMemory on the node (IP: 10.3.0.4, ID: ab) where the task (task ID: cd, "
        "name=map_batches, pid=812, memory used=91.20GB) was running was 120.05GB / 125.76GB "
        "(0.954), which exceeds the memory usage threshold of 0.95.\n"),
    Excerpt("verl_nccl", "verl under Ray: a collective that never ends", "collective_timeout", RESTART,
        "(WorkerDict pid=812, ip=10.3.0.4) [rank11]:[E507 11:00:03.412345678 "
        "ProcessGroupNCCL.cpp:629] [Rank 11] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=24112, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=16, "
        "Timeout(ms)=600000) ran for 600051 milliseconds before timing out.\n"),
    Excerpt("sagemaker_user", "a cloud service's wrapper around a user's mistake", "import_error", STOP,
        "ErrorMessage \"ModuleNotFoundError: No module named 'datasets'\"\nCommand "
        "\"/opt/conda/bin/python3.10 train.py --epochs 3\"\n2026-05-07 11:00:03,412 "
        "sagemaker-training-toolkit ERROR    ExecuteUserScriptError:\nExitCode 1\nErrorMessage "
        "\"ModuleNotFoundError: No module named 'datasets'\"\n"),
    Excerpt("vertex_spot", "a cloud service takes its machine back", "preempted", RESTART,
        steps(900, 920) + "{\"severity\":\"WARNING\",\"textPayload\":\"Received a preemption "
                          "notice from the metadata server, instance is scheduled for "
                          "termination\",\"timestamp\":\"2026-05-07T11:00:03Z\"}\n"),
    Excerpt("dask_worker", "Dask: a worker over its memory", "host_oom", RESTART,
        "distributed.nanny.memory - WARNING - Worker tcp://10.3.0.4:41233 (pid=812) exceeded 95% "
        "memory budget. Restarting...\ndistributed.scheduler.KilledWorker: Attempted to run task "
        "'read-parquet' on 4 different workers, but all those workers died while running it.\n"),
    # ---- schedulers ----
    Excerpt("srun_abort_k", "srun -K: one task aborts", "abort", RESTART,
        steps(1, 30, " 0: step {n} loss {loss:.2f}") + "srun: error: n14: task 6: Aborted (core "
                                                       "dumped)\nsrun: Terminating "
                                                       "StepId=88123.0\nslurmstepd: error: *** "
                                                       "STEP 88123.0 ON n11 CANCELLED AT "
                                                       "2026-05-07T11:00:03 ***\nsrun: error: "
                                                       "n11: tasks 0-3: Terminated\nsrun: error: "
                                                       "n14: tasks 4-5,7: Terminated\n", root_ranks=(6,)),
    Excerpt("slurm_user_cancel_hung", "a person cancels a job that stood still", "cancelled", STOP,
        steps(1, 30) + "slurmstepd: error: *** JOB 88124 ON n11 CANCELLED AT 2026-05-07T11:00:03 "
                       "***\nslurmstepd: error: *** STEP 88124.0 ON n11 CANCELLED AT "
                       "2026-05-07T11:00:03 ***\nsrun: Job step aborted: Waiting up to 32 seconds "
                       "for job step to finish.\nsrun: error: n11: tasks 0-7: Terminated\n"),
    Excerpt("slurm_time_step", "a step at its limit", "time_limit", STOP,
        steps(1, 30) + "srun: Job step aborted: Waiting up to 62 seconds for job step to "
                       "finish.\nslurmstepd: error: *** STEP 88125.0 ON n11 CANCELLED AT "
                       "2026-05-07T11:00:03 DUE TO TIME LIMIT ***\n"),
    Excerpt("slurm_module", "a job script without its command", "missing_file", STOP,
        "/var/spool/slurmd/job88126/slurm_script: line 14: torchrun: command not found\n"),
    Excerpt("sge_mem", "a queue's limit on memory", "host_oom", RESTART,
        steps(1, 30) + "job 4411 exceeded hard limit h_vmem; process killed: out of "
                       "memory\nKilled\n"),
    Excerpt("htcondor_evict", "HTCondor takes the slot back", "preempted", RESTART,
        steps(1, 30) + "004 (4411.000.000) 05/07 11:00:03 Job was evicted.\n\t(0) CPU times: job "
                       "was preempted by a better match\n"),
    Excerpt("mpich_bad_term", "MPICH's word on a rank", "segfault", RESTART,
        steps(1, 30) + "===================================================================================\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 812 RUNNING AT n14\n=   EXIT CODE: 139\n=   CLEANING UP REMAINING PROCESSES\n===================================================================================\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)\n"),
    # ---- Kubernetes, containers ----
    Excerpt("k8s_crashloop_args", "a pod whose command line is wrong", "bad_arguments", STOP,
        "2026-05-07T11:00:03.412345678Z stderr F usage: train.py [-h] --config "
        "CONFIG\n2026-05-07T11:00:03.412399999Z stderr F train.py: error: the following arguments "
        "are required: --config\n"),
    Excerpt("k8s_deadline", "a Job at its active deadline", "time_limit", STOP,
        steps(1, 30) + "Warning  DeadlineExceeded  3m  job-controller  Job was active longer than "
                       "specified deadline\n"),
    Excerpt("k8s_disk_pressure", "a pod over its scratch space", "disk_full", STOP,
        "Warning  Evicted  2m  kubelet  Pod ephemeral local storage usage exceeds the total limit "
        "of containers 20Gi.\n"),
    Excerpt("docker_oom_inspect", "docker inspect of an ended container", "host_oom", RESTART,
        "\"State\": {\n    \"Status\": \"exited\",\n    \"OOMKilled\": true,\n    \"ExitCode\": "
        "137,\n"),
    Excerpt("podman_exec", "podman: a command that is not in the image", "missing_file", STOP,
        "Error: crun: executable file `torchrun` not found in $PATH: No such file or directory: "
        "OCI runtime attempted to invoke a command that was not found\n"),
    # ---- devices and links ----
    Excerpt("xid_79", "a GPU off the bus", "hardware_fault", RESTART,
        steps(1, 30) + _under("[rank4]: ", traceback("RuntimeError: CUDA error: unspecified "
                                                     "launch failure", "/w/main.py:main:loss.item()")), kernel="[ 9912.100000] NVRM: GPU at PCI:0000:4f:00: GPU-77\n[ 9912.100100] NVRM: Xid (PCI:0000:4f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n", root_ranks=(4,)),
    Excerpt("nvlink_fatal", "NVLink: a fabric error in CUDA", "link_fault", RESTART,
        steps(1, 30) + traceback("torch.AcceleratorError: CUDA error: uncorrectable NVLink error "
                                 "detected during the execution", "/w/main.py:main:loss.backward()")),
    Excerpt("efa_error", "EFA: a request that did not complete", "link_fault", RESTART,
        steps(1, 30) + "n14:812:901 [2] nccl_net_ofi_rdma.c:900 NCCL WARN NET/OFI Request 0x7f "
                       "completed with error. RC: 14. Error: unreachable remote. Completed "
                       "length: 0\n"),
    Excerpt("ucx_retry", "UCX: retries used up", "link_fault", RESTART,
        steps(1, 30) + "[n14:812  :0:812] ib_mlx5_log.c:179  Transport retry count exceeded on "
                       "mlx5_2:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)\n[n14:812  :0:812] "
                       "ib_mlx5_log.c:179  RC QP 0x1b5 wqe[99]: SEND --e [inl len 26]\n"),
    Excerpt("rocm_oom", "ROCm: memory at a later step", "device_oom", RESTART,
        steps(60, 90) + traceback("torch.OutOfMemoryError: HIP out of memory. Tried to allocate "
                                  "2.00 GiB. GPU 1 has a total capacity of 63.98 GiB of which "
                                  "1.20 GiB is free.", "/w/main.py:main:loss.backward()")),
    Excerpt("rocm_page_fault_kernel", "amdgpu beside a job that aborted", "illegal_access", RESTART,
        steps(60, 90) + "Memory access fault by GPU node-2 (Agent handle: 0x55d) on address "
                        "0x7f3c00000000. Reason: Page not present or supervisor privilege.\n", kernel="[ 881.2] amdgpu 0000:83:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32770, for process python3 pid 812)\n"),
    Excerpt("intel_xpu", "oneAPI: a device that was lost", "hardware_fault", RESTART,
        steps(1, 30) + traceback("RuntimeError: Native API failed. Native API returns: 20 "
                                 "(UR_RESULT_ERROR_DEVICE_LOST)", "/w/main.py:main:loss.item()")),
    Excerpt("habana", "Gaudi: a device that cannot be taken", "hardware_fault", RESTART,
        traceback("RuntimeError: synStatus=8 [Device not found] Device acquire failed. No devices "
                  "found.", "/w/main.py:main:import habana_frameworks.torch.core")),
    # ---- storage ----
    Excerpt("gcsfuse_lost", "a FUSE mount that went away", "storage_fault", RESTART,
        steps(400, 430) + traceback("OSError: [Errno 107] Transport endpoint is not connected: "
                                    "'/gcs/bucket/shards/0091.tar'", "/w/data.py:open_shard:return open(p, 'rb')")),
    Excerpt("hdfs_safe", "HDFS refuses to write", "storage_fault", RESTART,
        steps(400, 430) + traceback("OSError: [Errno 121] Remote I/O error: "
                                    "'/hdfs/ckpt/step_430'", "/w/ck.py:save:f.write(buf)")),
    Excerpt("s3_timeout", "S3: an endpoint that does not answer", "storage_fault", RESTART,
        traceback("botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "
                  "\"https://b.s3.invalid/shards/0091.tar\"", "/w/data.py:fetch:self.s3.get_object(Bucket=b, Key=k)")),
    Excerpt("quota", "a quota reached while saving", "disk_full", STOP,
        steps(400, 430) + traceback("OSError: [Errno 122] Disk quota exceeded: "
                                    "'/home/u/ckpt/step_430.pt'", "/w/ck.py:save:torch.save(sd, "
                                                                  "p)")),
    # ---- torch and what stands on it ----
    Excerpt("titan_seq", "torchtitan: one rank behind", "collective_timeout", RESTART,
        "".join(f"[rank{r}]:[E507 11:00:0{r}.4 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID "
                f"0(default_pg) Rank {r}] Timeout at NCCL work: 3110, last enqueued NCCL work: "
                f"{3110 if r == 2 else 3114}, last completed NCCL work: 3109.\n" for r in range(4)), root_ranks=(2,)),
    Excerpt("axolotl_pydantic", "axolotl: a YAML with a wrong field", "bad_config", STOP,
        traceback("pydantic_core._pydantic_core.ValidationError: 1 validation error for "
                  "AxolotlInputConfig\nmicro_batch_size\n  Input should be a valid integer, "
                  "unable to parse string as an integer [type=int_parsing, input_value='two', "
                  "input_type=str]", "/w/cli.py:main:cfg = load_cfg(path)")),
    Excerpt("llamafactory_dataset", "LLaMA-Factory: a data set that is not declared", "bad_config", STOP,
        traceback("ValueError: Undefined dataset alpaca_zz in dataset_info.json.", "/w/cli.py:main:run_exp()", "/w/llamafactory/data/parser.py:get_dataset_list:raise ValueError")),
    Excerpt("fairseq_oom_late", "fairseq: memory after many updates", "device_oom", RESTART,
        "2026-05-07 11:00:03 | INFO | train_inner | epoch 003:    511 / 1736 loss=4.51, "
        "nll_loss=2.99, ppl=7.94, wps=31000, ups=2.1, wpb=14000, bsz=480, num_updates=3983, "
        "lr=0.0005\n" + traceback("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to "
                                  "allocate 1.20 GiB (GPU 0; 15.78 GiB total capacity; 13.9 GiB "
                                  "already allocated)", "/w/train.py:main:trainer.train_step(s)")),
    Excerpt("yolo_label", "YOLO: a class that does not exist, one rank of two", "device_assert", RESTART,
        steps(1, 5, "      {n}/100      4.2G     0.0381    0.0221        64        640:  45%|████|"
                    " 52/115 [00:10<00:12,  5.1it/s]")
        + "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [5,0,0], "
          "thread: [64,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && \"index out of "
          "bounds\"` failed.\n" + _under("[rank1]: ", traceback("RuntimeError: CUDA error: "
                                                                "device-side assert triggered", "/w/train.py:main:loss.backward()")), root_ranks=(1,)),
    Excerpt("composer_resume", "Composer: a checkpoint of another model", "checkpoint_mismatch", STOP,
        traceback("RuntimeError: Error(s) in loading state_dict for "
                  "ComposerMPTCausalLM:\n\tMissing key(s) in state_dict: "
                  "\"model.transformer.blocks.24.norm_1.weight\"", "/w/train.py:main:trainer.fit()", f"{_S}/composer/utils/checkpoint.py:load_checkpoint:state.load_model_state(sd)")),
    Excerpt("rank_oom_one", "one of four ranks out of memory late, the others lose it", "device_oom", RESTART,
        ranks={0: steps(1, 700) + traceback("RuntimeError: NCCL communicator was aborted on rank "
                                            "0.", "/w/t.py:main:l.backward()"), 1: steps(1, 700), 2: steps(1, 700) + traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB.", "/w/t.py:main:l.backward()"), 3: steps(1, 700)},
        root_ranks=(2,), ends=(RankEnd(2, exit_code=1, time=5.0), RankEnd(0, exit_code=1, time=9.0), RankEnd(1, signal=15, time=9.5), RankEnd(3, signal=15, time=9.5))),
    Excerpt("silent_kill", "a rank gone without a word, by its launcher's list", "killed", RESTART,
        ranks={0: steps(1, 40), 1: steps(1, 39)}, root_ranks=(1,), ends=(RankEnd(1, signal=9, time=3.0), RankEnd(0, signal=15, time=4.0))),
    Excerpt("unknown_exit", "a rank leaves with 3 and says nothing", "unknown", UNKNOWN,
        ranks={0: steps(1, 40), 1: steps(1, 39)}, root_ranks=(1,), ends=(RankEnd(1, exit_code=3, time=3.0), RankEnd(0, signal=15, time=4.0))),
    Excerpt("port_taken", "a second job on the same host", "port_in_use", RESTART,
        traceback("torch.distributed.DistNetworkError: The server socket has failed to listen on "
                  "any local network address. port: 29500, useIpv6: false, code: -98, name: "
                  "EADDRINUSE, message: address already in use", "/w/t.py:main:dist.init_process_group()")),
    Excerpt("rdzv_timeout", "a node that never came", "rendezvous_error", RESTART,
        "[E507 11:00:03.412345678 socket.cpp:957] [c10d] The client socket has timed out after "
        "900s while trying to connect to (n11, 29500).\n" + traceback("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.", f"{_S}/torch/distributed/run.py:main:run(args)")),
    Excerpt("attr_error_all", "a program's own mistake on all ranks", "user_exception", RESTART,
        ranks={r: traceback("AttributeError: 'Namespace' object has no attribute 'use_flash'", "/w/t.py:main:build(args)", "/w/model.py:build:if args.use_flash:") for r in range(2)}, root_ranks=(0, 1), ends=(RankEnd(0, exit_code=1), RankEnd(1, exit_code=1))),
    Excerpt("grad_nan", "a guard on gradients", "nan", RESTART,
        steps(1, 90) + traceback("RuntimeError: The total norm of order 2.0 for gradients from "
                                 "`parameters` is non-finite, so it cannot be clipped. To disable "
                                 "this error set `error_if_nonfinite=False`", "/w/t.py:main:clip_grad_norm_(p, 1.0)")),
    Excerpt("webdataset_tar", "webdataset: a tar cut short", "data_error", RESTART,
        steps(1, 90) + traceback("tarfile.ReadError: unexpected end of data", "/w/t.py:main:for b in loader:", f"{_S}/webdataset/tariterators.py:tar_file_iterator:for ti in stream:")),
    Excerpt("one_node_module", "one of two hosts has another image", "import_error", RESTART,
        _under("n21: ", traceback("ModuleNotFoundError: No module named 'transformer_engine'", "/w/t.py:<module>:import transformer_engine"))
        + _under("n20: ", traceback("torch.distributed.DistStoreError: Timed out after 301 "
                                    "seconds waiting for clients. 8/16 clients joined.", "/w/t.py:main:dist.init_process_group()"))),
    Excerpt("typo_flag_deepspeed", "deepspeed launcher, a flag that is not there", "bad_arguments", STOP,
        "usage: main.py [-h] [--data_path DATA_PATH]\nmain.py: error: unrecognized arguments: "
        "--zero_stge 3\n[2026-05-07 11:00:05,000] [INFO] [launch.py:319:sigkill_handler] Killing "
        "subprocess 812\n[2026-05-07 11:00:05,001] [ERROR] [launch.py:325:sigkill_handler] "
        "['/usr/bin/python3', '-u', 'main.py', '--local_rank=7'] exits with return code = 2\n"),
)  # fmt: skip
