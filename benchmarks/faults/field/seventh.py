"""A seventh set, written after the sixth had been learned from: its truth came before its only
look. Two in three are not torch.
"""

from aorta.attribution import RankEnd
from benchmarks.faults.field import RESTART, STOP, UNKNOWN, Excerpt, steps, traceback

_S = "/usr/local/lib/python3.10/dist-packages"
_PADDLE = (
    "[2026/03/01 10:00:00] ppcls INFO: [Train][Epoch 1/120][Iter: {n}/2502]lr: 0.05000, "
    "top1: 0.01, loss: {loss:.5f}, ips: 812.1 samples/s"
)

EXCERPTS: tuple[Excerpt, ...] = (
    # ---- Paddle ----
    Excerpt("paddle_container_abort", "Paddle launch: a container aborts", "abort", RESTART,
        steps(10, 40, _PADDLE) + "LAUNCH INFO 2026-03-01 15:17:31,067 Pod failed\nLAUNCH ERROR "
                                 "2026-03-01 15:17:31,067 Container failed !!!\nContainer rank 0 "
                                 "status failed cmd ['/usr/bin/python3.8', '-u', 'train.py'] code "
                                 "-6 log log/default.fpwuxo.0.log\n", root_ranks=(0,)),
    Excerpt("paddle_precondition", "Paddle: a device that is not compiled in", "bad_config", STOP,
        traceback("ValueError: The current device id list is empty, because your paddle is not "
                  "compiled with CUDA. Please use `paddle.set_device('cpu')` or install "
                  "paddlepaddle-gpu.", "/app/tools/train.py:main:engine = Engine(config)", f"{_S}/paddle/device/__init__.py:set_device:raise ValueError(")),
    Excerpt("paddle_oom", "Paddle: device memory in the middle", "device_oom", RESTART,
        steps(300, 330, _PADDLE) + traceback("MemoryError: \n\n--------------------------------------\nC++ Traceback (most recent call last):\n--------------------------------------\n0   paddle::memory::allocation::CUDAAllocator::AllocateImpl(unsigned long)\n\n----------------------\nError Message Summary:\n----------------------\nResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 1.953125GB memory on GPU 0, 30.1GB memory has been allocated and available memory is only 1.6GB.", "/app/tools/train.py:main:engine.train()")),
    Excerpt("paddle_no_file", "Paddle: a weight file that is not there", "missing_file", STOP,
        traceback("AssertionError: The pretrained weight path /models/base.pdparams does not "
                  "exist", "/app/tools/train.py:main:init_model(config)", "/app/ppcls/utils/save_load.py:init_model:assert os.path.exists(path)")),
    # ---- SGLang, TensorRT-LLM, Triton server ----
    Excerpt("sglang_graph_memory", "SGLang: no memory for graphs at start", "device_oom", STOP,
        "[2026-03-17 11:14:39 TP0] Load weight begin. avail mem=78.58 GB\n" + traceback("Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of 79.11 GiB of which 411.00 MiB is free.\nPossible solutions:\n1. disable cuda graph by --disable-cuda-graph\n2. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)", f"{_S}/sglang/srt/managers/scheduler.py:run_scheduler_process:scheduler = Scheduler(server_args)", f"{_S}/sglang/srt/model_executor/model_runner.py:init_cuda_graphs:self.cuda_graph_runner = CudaGraphRunner(self)", f"{_S}/sglang/srt/model_executor/cuda_graph_runner.py:__init__:raise Exception(")),
    Excerpt("sglang_graph_peer", "SGLang: a peer is gone while graphs are captured", "network_loss", RESTART,
        "[2026-03-17 11:14:39 TP3] Scheduler hit an exception: " + traceback("Exception: Capture cuda graph failed: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.9]:21331", f"{_S}/sglang/srt/managers/scheduler.py:run_scheduler_process:scheduler = Scheduler(server_args)", f"{_S}/sglang/srt/model_executor/cuda_graph_runner.py:__init__:raise Exception(")),
    Excerpt("trtllm_world", "TensorRT-LLM: an engine for another world size", "bad_config", STOP,
        "[TensorRT-LLM][INFO] MPI size: 1, rank: 0\n" + traceback("RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: mpiSize == tp * pp (/build/cpp/tensorrt_llm/runtime/worldConfig.cpp:99)", "/app/run.py:main:runner = runner_cls.from_dir(**kw)", f"{_S}/tensorrt_llm/runtime/model_runner_cpp.py:from_dir:world_config = WorldConfig.mpi(")),
    Excerpt("trtllm_engine_world", "TensorRT-LLM: engine and runtime disagree", "bad_config", STOP,
        traceback("AssertionError: Engine world size (2 * 1) != Runtime world size (1)", "/app/run.py:main:runner = from_dir(d)", f"{_S}/tensorrt_llm/runtime/model_runner.py:read_config:assert world_size == mpi_world_size()") + "--------------------------------------------------------------------------\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n--------------------------------------------------------------------------\n"),
    Excerpt("trt_version", "TensorRT: an engine of another release", "bad_config", STOP,
        "[TRT] [E] 6: The engine plan file is not compatible with this version of TensorRT, "
        "expecting library version 10.0.1.6 got 9.2.0.5, please rebuild.\n" + traceback("AssertionError: Failed to deserialize the engine", "/app/run.py:main:engine = load(path)", "/app/engine.py:load:assert engine is not None")),
    # ---- Horovod, MPI ----
    Excerpt("horovod_shutdown", "Horovod: another rank raised", "import_error", STOP,
        "".join(f"[1,{r}]<stderr>:{line}\n" for r in (0, 1) for line in traceback("ModuleNotFoundError: No module named 'tensorflow_addons'", "/app/train.py:<module>:import tensorflow_addons as tfa").splitlines()) + "[1,2]<stderr>:2026-04-12 04:03:48.651196: W tensorflow/core/framework/op_kernel.cc:1767] OP_REQUIRES failed at mpi_ops.cc:412 : Unknown: Horovod has been shut down. This was caused by an exception on one of the ranks.\n"),
    Excerpt("horovod_aborted", "Horovod: one worker aborts under bash", "abort", RESTART,
        steps(20, 50, "[0]<stdout>:Step {n}, loss {loss:.3f}") + "[0]<stderr>:terminate called "
                                                                 "after throwing an instance of "
                                                                 "'std::logic_error'\n[0]<stderr>:  what():  Process set is not initialised\n[0]<stderr>:bash: line 1:  3635 Aborted                 (core dumped) HOROVOD_HOSTNAME=elastic-test-worker-2 HOROVOD_RANK=0 python train.py\n"),
    Excerpt("hydra_exit_one", "MPICH: a rank that exits with its own code", "unknown", UNKNOWN,
        "===================================================================================\n=   "
        "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 99 RUNNING AT c4\n=   EXIT "
        "CODE: 3\n===================================================================================\n"),
    Excerpt("openmpi_daemon", "Open MPI: a daemon that is lost", "network_loss", RESTART,
        steps(5, 30) + "--------------------------------------------------------------------------\nORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[51812,0],0] on node c1\n  Remote daemon: [[51812,0],3] on node c4\n\nThis is usually due to either a failure of the TCP network\nconnection to the node, or possibly an internal failure of\nthe daemon itself.\n--------------------------------------------------------------------------\n"),
    # ---- data ----
    Excerpt("streaming_index", "Mosaic streaming: an index that is not in the bucket", "missing_file", STOP,
        traceback("RuntimeError: Failed to download s3://b/data/train/index.json -> "
                  "/tmp/x/train/index.json. Got errors:\n[ClientError('Object "
                  "s3://b/data/train/index.json not found! Either check the bucket path or the "
                  "bucket permission.')]", "/app/train.py:main:ds = "
                                           "StreamingDataset(remote=cfg.remote)", f"{_S}/streaming/base/stream.py:get_shards:self._download_file(basename)") + "ERROR:composer.cli.launcher:Rank 0 crashed with exit code 1.\n"),
    Excerpt("streaming_sample", "Mosaic streaming: a shard that is cut off", "data_error", RESTART,
        steps(800, 830) + traceback("IndexError: Relative sample index 85 is not present in the "
                                    "17/shard.00085.mds file.", "/app/train.py:main:for batch in "
                                                                "loader", f"{_S}/streaming/base/format/mds/reader.py:get_sample_data:raise IndexError(")),
    Excerpt("streaming_hash", "Mosaic streaming: a checksum that differs", "data_error", RESTART,
        steps(800, 830) + traceback("ValueError: Checksum failure: /tmp/cache/shard.00012.mds", "/app/train.py:main:for batch in loader", f"{_S}/streaming/base/stream.py:_prepare_shard_part:raise ValueError(")),
    Excerpt("hf_arrow_disk", "datasets: the cache fills the disk", "disk_full", STOP,
        "Map:  41%|████      | 410000/1000000 [03:00<04:10, 2300 examples/s]\n" + traceback("OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device", "/app/train.py:main:ds = ds.map(tokenize)", f"{_S}/datasets/arrow_writer.py:write_table:self.pa_writer.write_table(t)")),
    Excerpt("hf_columns", "datasets: files that do not agree", "data_error", RESTART,
        traceback("datasets.exceptions.DatasetGenerationCastError: An error occurred while "
                  "generating the dataset\n\nAll the data files must have the same columns, but "
                  "at some point there are 2 new columns ({'meta', 'id'})", "/app/train.py:main:ds = load_dataset('json', data_files=f)")),
    Excerpt("dali_decode", "DALI: an image that cannot be decoded", "data_error", RESTART,
        steps(50, 80) + traceback("RuntimeError: Critical error in pipeline:\nError when "
                                  "executing Mixed operator decoders__Image "
                                  "encountered:\n[/opt/dali/operators/decoder/host/host_decoder.cc:31] Unrecognized image format. Supported formats are: JPEG, PNG, BMP\nCurrent pipeline object is no longer valid.", "/app/train.py:main:for d in loader")),
    Excerpt("webdataset_tar", "webdataset: a tar that ends early", "data_error", RESTART,
        steps(50, 80) + traceback("tarfile.ReadError: unexpected end of data @ <Stream "
                                  "/data/shard-000017.tar>", "/app/train.py:main:for b in loader", f"{_S}/webdataset/tariterators.py:tar_file_iterator:for tarinfo in stream")),
    Excerpt("sentencepiece_model", "a tokenizer model that is not one", "checkpoint_corrupt", STOP,
        traceback("RuntimeError: Internal: src/sentencepiece_processor.cc(1101) "
                  "[model_proto->ParseFromArray(serialized.data(), serialized.size())]", "/app/train.py:main:tok = Tokenizer(cfg.tokenizer)", f"{_S}/sentencepiece/__init__.py:LoadFromFile:return _sp.Load(self, arg)")),
    # ---- clusters and clouds ----
    Excerpt("determined_table", "Determined: torchrun's table behind a prefix", "unknown", UNKNOWN,
        "".join(f"[2026-06-09T09:22:31.40518{i}Z] 8de2ca81 || {line}\n" for i, line in enumerate(["Root Cause (first observed failure):", "[0]:", "  time      : 2026-06-09_09:22:31", "  host      : 5e4bef3a2da3", "  rank      : 3 (local_rank: 3)", "  exitcode  : 1 (pid: 36)", "  error_file: <N/A>"])), root_ranks=(3,)),
    Excerpt("sky_setup", "SkyPilot: its set-up script fails", "missing_file", STOP,
        "(setup pid=2210) bash: line 4: uv: command not found\nERROR: Job 1's setup failed with "
        "return code list: [127]\n", ),
    Excerpt("sky_spot", "SkyPilot: a spot machine is taken", "preempted", RESTART,
        steps(40, 70, "(task, pid=6295) step {n} loss {loss:.3f}") + "W 06-01 10:00:00 managed_jobs.py:371] Cluster is preempted or failed. Recovering...\nI 06-01 10:00:01 recovery_strategy.py:201] The spot instance was reclaimed by the cloud\n"),
    Excerpt("airflow_pod", "Airflow: the pod is killed for memory", "host_oom", RESTART,
        "[2026-06-01T10:00:00.000+0000] {pod_manager.py:468} INFO - [base] step 41 loss "
        "2.1\n[2026-06-01T10:00:09.000+0000] {taskinstance.py:3311} ERROR - Task failed with "
        "exception\nairflow.exceptions.AirflowException: Pod train-abc returned a "
        "failure.\nremote_pod: {'container_statuses': [{'state': {'terminated': {'exit_code': "
        "137, 'reason': 'OOMKilled'}}}]}\n"),
    Excerpt("spark_barrier", "Spark: a barrier stage that cannot be scheduled", "bad_config", STOP,
        "org.apache.spark.SparkException: [SPARK-24819]: Barrier execution mode does not allow "
        "run a barrier stage that requires more slots than the total number of slots in the "
        "cluster currently. Please init a new cluster with more resources(e.g. CPU, GPU) or "
        "repartition the input RDD(s) to reduce the number of slots required to run this barrier "
        "stage.\n"),
    Excerpt("ecs_stopped", "ECS: the task is stopped for a new host", "preempted", RESTART,
        steps(70, 90) + "stoppedReason: Your Spot Task was interrupted.\nstopCode: "
                        "SpotInterruption\n"),
    Excerpt("azureml_low_priority", "Azure ML: a low-priority node is taken", "preempted", RESTART,
        steps(70, 90) + "2026-06-01T10:00:00Z Node preempted: job will be requeued when capacity "
                        "is available\n"),
    Excerpt("gke_tpu_maintenance", "GKE: maintenance takes the node", "preempted", RESTART,
        steps(70, 90) + "Warning  NodeTermination  node-problem-detector  Node will be terminated "
                        "for host maintenance in 60 s\nReceived SIGTERM, shutting down\n"),
    Excerpt("slurm_requeue_health", "Slurm: a node fails its health check", "hardware_fault", RESTART,
        steps(70, 90) + "slurmstepd: error: *** JOB 99812 ON g112 CANCELLED AT "
                        "2026-06-01T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS "
                        "***\n"),
    Excerpt("slurm_oom_step", "Slurm: a step beyond its memory", "host_oom", RESTART,
        steps(70, 90) + "slurmstepd: error: Detected 2 oom_kill events in StepId=812.batch. Some "
                        "of the step tasks have been OOM Killed.\nsrun: error: c7: task 3: Out Of "
                        "Memory\nsrun: Terminating StepId=812.0\nsrun: error: c7: tasks 0-2: "
                        "Killed\n", root_ranks=(3,)),
    Excerpt("flux_resource", "Flux: more than there is", "bad_config", STOP,
        "flux-run: ERROR: [Errno 22] unsatisfiable request: not enough GPUs (requested 16, total "
        "8)\n"),
    Excerpt("lsf_nonexistent_queue", "LSF: a queue that is not there", "bad_config", STOP,
        "gpu_longg: No such queue. Job not submitted.\n"),
    # ---- experiment tools, configuration ----
    Excerpt("mlflow_unreachable", "MLflow: the tracking server does not answer", "network_loss", RESTART,
        traceback("mlflow.exceptions.MlflowException: API request to "
                  "http://mlflow:5000/api/2.0/mlflow/runs/create failed with exception "
                  "HTTPConnectionPool(host='mlflow', port=5000): Max retries exceeded with url: "
                  "/api/2.0/mlflow/runs/create (Caused by NewConnectionError('Failed to establish "
                  "a new connection: [Errno 111] Connection refused'))", "/app/train.py:main:mlflow.start_run()")),
    Excerpt("wandb_permission", "W&B: a project one may not write", "permission_denied", RESTART,
        "wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)\n" + traceback("wandb.errors.errors.CommError: It appears that you do not have permission to access the requested resource. Please reach out to the project owner to grant you access.", "/app/train.py:main:wandb.init(project='x')")),
    Excerpt("hydra_missing", "Hydra: a value that must be given", "bad_config", STOP,
        "Error executing job with overrides: []\n" + traceback("omegaconf.errors.MissingMandatoryValue: Missing mandatory value: data.root\n    full_key: data.root\n    object_type=dict", "/app/train.py:main:root = cfg.data.root")),
    Excerpt("hydra_choice", "Hydra: a group that has no such member", "bad_config", STOP,
        "In 'train': Could not find 'model/gpt_1t'\n\nAvailable options in "
        "'model':\n\tgpt_125m\n\tgpt_1b\nConfig search path:\n\tprovider=main, "
        "path=file:///app/conf\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete "
        "stack trace.\n"),
    Excerpt("yaml_tab", "a YAML file with a tab in it", "bad_config", STOP,
        traceback("yaml.scanner.ScannerError: while scanning for the next token\nfound character "
                  "'\\t' that cannot start any token\n  in \"conf/base.yaml\", line 12, column 1", "/app/train.py:main:cfg = yaml.safe_load(open(p))")),
    Excerpt("gin_unknown", "gin: a configurable nobody knows", "bad_config", STOP,
        traceback("ValueError: No configurable matching 'Trainr'.\n  In file "
                  "\"configs/base.gin\", line 4\n    Trainr.lr = 0.1", "/app/train.py:main:gin.parse_config_files_and_bindings(files, b)", f"{_S}/gin/config.py:parse_config:raise ValueError(")),
    Excerpt("env_int", "an environment variable that is no number", "bad_config", STOP,
        traceback("ValueError: invalid literal for int() with base 10: 'eight'", "/app/train.py:main:world = int(os.environ['WORLD_SIZE'])")),
    Excerpt("fire_arg", "fire: an argument nobody takes", "bad_arguments", STOP,
        "ERROR: Could not consume arg: --batchsize\nUsage: train.py --config=CONFIG "
        "<flags>\n\nFor detailed information on this command, run:\n  train.py --help\n"),
    Excerpt("tyro_arg", "tyro: an option that is not there", "bad_arguments", STOP,
        "╭─ Unrecognized options ─────────────────────────────────────╮\n│ Unrecognized options: "
        "--trainer.lr-rate                    │\n│ Similar options: --trainer.lr                  "
        "            │\n╰────────────────────────────────────────────────────────────╯\n"),
    Excerpt("python_version", "a program for a newer language", "syntax_error", STOP,
        '  File "/app/train.py", line 12\n    match cfg.model:\n          ^\nSyntaxError: invalid '
        'syntax\n'),
    Excerpt("glibc", "a wheel for a newer system", "import_error", STOP,
        traceback("ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found "
                  "(required by /opt/venv/lib/python3.10/site-packages/flash_attn_2_cuda.so)", "/app/train.py:<module>:import flash_attn")),
    Excerpt("pkg_version", "transformers: a package of another version", "import_error", STOP,
        traceback("ImportError: tokenizers>=0.20,<0.21 is required for a normal functioning of "
                  "this module, but found tokenizers==0.15.2.\nTry: `pip install transformers -U` "
                  "or `pip install -e '.[dev]'`", "/app/train.py:<module>:import transformers")),
    Excerpt("numpy_abi", "NumPy: built for another ABI", "import_error", STOP,
        traceback("ValueError: numpy.dtype size changed, may indicate binary incompatibility. "
                  "Expected 96 from C header, got 88 from PyObject", "/app/train.py:<module>:import pandas as pd")),
    # ---- training code ----
    Excerpt("lightning_ckpt_hparams", "Lightning: a checkpoint of another class", "checkpoint_mismatch", STOP,
        traceback("RuntimeError: Error(s) in loading state_dict for LitModel:\n\tMissing key(s) "
                  "in state_dict: \"encoder.layers.0.weight\". \n\tUnexpected key(s) in "
                  "state_dict: \"backbone.0.weight\".", "/app/train.py:main:LitModel.load_from_checkpoint(p)", f"{_S}/torch/nn/modules/module.py:load_state_dict:raise RuntimeError(")),
    Excerpt("accelerate_state", "accelerate: a state saved by other processes", "missing_file", STOP,
        traceback("FileNotFoundError: [Errno 2] No such file or directory: "
                  "'ckpt/random_states_7.pkl'", "/app/train.py:main:accelerator.load_state('ckpt')", f"{_S}/accelerate/checkpointing.py:load_accelerator_state:states = load(path)")),
    Excerpt("yolo_cuda_assert", "YOLO: labels beyond the classes", "device_assert", RESTART,
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n      "
        "1/100      2.31G      1.312      2.113      1.221         91        640:  12%|█▏  | "
        "91/740\n../aten/src/ATen/native/cuda/ScatterGatherKernel.cu:365: operator(): block: "
        "[1,0,0], thread: [5,0,0] Assertion `idx_dim >= 0 && idx_dim < index_size && \"index out "
        "of bounds\"` failed.\n" + traceback("RuntimeError: CUDA error: device-side assert "
                                             "triggered", "/app/train.py:main:model.train()")),
    Excerpt("nnunet_background", "nnU-Net: background workers are gone", "killed", RESTART,
        steps(30, 60, "2026-06-01 10:00:00.1: Epoch {n} train_loss {loss:.4f}") + traceback("RuntimeError: One or more background workers are no longer alive. Exiting. Please check the print statements above for the actual error message", "/app/nnunetv2/run.py:run_training:next(loader)", f"{_S}/batchgenerators/dataloading/multi_threaded_augmenter.py:__next__:raise RuntimeError(")),
    Excerpt("sb3_nan", "reinforcement learning: a distribution of NaN", "nan", RESTART,
        steps(900, 930) + traceback("ValueError: Expected parameter loc (Tensor of shape (256, "
                                    "6)) of distribution Normal(loc: torch.Size([256, 6]), scale: "
                                    "torch.Size([256, 6])) to satisfy the constraint Real(), but "
                                    "found invalid values:\ntensor([[nan, nan, nan]])", "/app/train.py:main:model.learn()")),
    Excerpt("dgl_partition", "DGL: a partition that is not there on one machine", "missing_file", RESTART,
        ranks={0: steps(1, 4) + "RuntimeError: Connection reset by peer\n", 1: traceback("FileNotFoundError: [Errno 2] No such file or directory: '/local/part1/graph.dgl'", "/app/train.py:main:g = dgl.distributed.DistGraph('g')")}, root_ranks=(1,)),
    Excerpt("flash_head", "flash-attn: a head that is too large", "bad_config", RESTART,
        traceback("RuntimeError: FlashAttention forward only supports head dimension at most 256", "/app/train.py:main:out = model(x)", f"{_S}/flash_attn/flash_attn_interface.py:_flash_attn_forward:out = fa.fwd(")),
    Excerpt("deepep_timeout", "DeepEP: ranks wait for one another", "collective_timeout", RESTART,
        steps(40, 60) + "DeepEP timeout for dispatch CPU: rank 5, global rank: 21, nvl_rank: 5, "
                        "waiting for RDMA channel 3\n" + traceback("RuntimeError: DeepEP error: "
                                                                   "CPU recv timeout", "/app/train.py:main:model(x)")),
    Excerpt("nvshmem_init", "NVSHMEM: it cannot be set up on a node", "link_fault", RESTART,
        "/opt/nvshmem/src/modules/transport/ibgda/ibgda.cpp:3117: NULL value get_device_name "
        "failed. WARN: IBGDA: no usable device, link is down on mlx5_3\n" + traceback("RuntimeError: nvshmem initialization failed: transport setup failed", "/app/train.py:main:init()")),
    Excerpt("cudnn_exec", "cuDNN: an execution that fails after many steps", "illegal_access", RESTART,
        steps(4000, 4030) + traceback("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "/app/train.py:main:loss.backward()")),
    Excerpt("gsplat_segv", "a kernel of one's own that crashes", "segfault", RESTART,
        steps(400, 430), ends=(RankEnd(0, signal=11), RankEnd(1, signal=15)), root_ranks=(0,)),
    Excerpt("alphafold_jackhmmer", "AlphaFold: a tool that is not installed", "missing_file", STOP,
        traceback("RuntimeError: Could not find path to the \"jackhmmer\" binary. Make sure it is "
                  "installed on your system.", "/app/run_alphafold.py:main:raise ValueError(")),
    Excerpt("open_files", "too many open files after a while", "user_exception", RESTART,
        steps(100, 130) + traceback("OSError: [Errno 24] Too many open files: '/data/x/1.png'", "/app/train.py:main:for b in loader")),
    Excerpt("ulimit_memlock", "verbs: memory cannot be locked on a node", "bad_config", RESTART,
        "c4:881:900 [0] NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory "
        "errno 12\nc4:881:900 [0] NCCL WARN ibv_reg_mr failed: check that the memory lock limit "
        "(ulimit -l) is unlimited\n" + traceback("torch.distributed.DistBackendError: NCCL error "
                                                 "in: ProcessGroupNCCL.cpp:1, unhandled system "
                                                 "error", "/app/train.py:main:dist.barrier()")),
)  # fmt: skip
