"""An eighth set, of frameworks and loggers that the others lack: its truth came before its only
look. Most are not plain torch.
"""

from benchmarks.faults.field import RESTART, STOP, UNKNOWN, Excerpt, steps, traceback

_S = "/opt/conda/lib/python3.11/site-packages"
_ESPNET = (
    "[gpu7] 2026-04-02 16:45:17,681 (trainer:486) INFO: 10epoch:train:{n}-{n}batch: "
    "iter_time=0.001, loss={loss:.3f}, lr_0=0.100"
)
_RSL = (
    "                      Learning iteration {n}/1500\n               Mean value_function "
    "loss: {loss:.4f}"
)
_PPO = "(TaskRunner pid=892) step:{n} - actor/pg_loss:{loss:.3f} - timing_s/step:31.2"

EXCERPTS: tuple[Excerpt, ...] = (
    # ---- simulation and reinforcement learning ----
    Excerpt("physx_700", "Isaac Lab: a GPU solver that reads out of bounds", "illegal_access", RESTART,
        steps(10, 40, _RSL) + "2026-02-20 09:13:08 [11,526ms] [Error] [omni.physx.plugin] PhysX "
                              "error: Fetching GPU Narrowphase failed! 700\n, FILE "
                              "/builds/physx/PxgNarrowphaseCore.cpp, LINE 1367\n2026-02-20 "
                              "09:13:08 [11,526ms] [Error] [omni.physx.plugin] Cuda context "
                              "manager error, simulation will be stopped and new cuda context "
                              "manager will be created.\n"),
    Excerpt("gym_no_env", "Gymnasium: an environment that is not registered", "bad_config", STOP,
        traceback("gymnasium.error.NameNotFound: Environment `Isaac-Antt` doesn't exist. Did you "
                  "mean: `Isaac-Ant`?", "/app/train.py:main:env = gym.make(args.task)", f"{_S}/gymnasium/envs/registration.py:_check_name_exists:raise error.NameNotFound(")),
    Excerpt("verl_actor_oom", "verl: Ray kills a worker for memory", "host_oom", RESTART,
        steps(10, 30, _PPO) + "ray.exceptions.OutOfMemoryError: Task was killed due to the node "
                              "running low on memory.\nMemory on the node (IP: 10.0.0.7, ID: 77) "
                              "where the task (actor ID: 26, name=WorkerDict) was running was "
                              "1006.1GB / 1007.5GB (0.998), which exceeds the memory usage "
                              "threshold of 0.95.\n"),
    Excerpt("verl_batch", "verl: a batch that does not divide", "bad_config", STOP,
        "Error executing job with overrides: ['data.train_batch_size=4']\n" + traceback("AssertionError: real_train_batch_size (32) must be divisible by minimal possible batch size (48)", "/app/verl/trainer/main_ppo.py:run:trainer = RayPPOTrainer(config)", "/app/verl/trainer/ppo/ray_trainer.py:_validate_config:assert real_train_batch_size % minimal_bsz == 0")),
    Excerpt("openrlhf_vllm_len", "OpenRLHF: a prompt longer than the engine takes", "bad_config", STOP,
        "(LLMRayActor pid=77) " + traceback("ValueError: The model's max seq len (8192) is larger "
                                            "than the maximum number of tokens that can be stored "
                                            "in KV cache (5040). Try increasing "
                                            "`gpu_memory_utilization` or decreasing "
                                            "`max_model_len` when initializing the engine.", f"{_S}/vllm/engine/llm_engine.py:__init__:self._initialize_kv_caches()", f"{_S}/vllm/worker/worker.py:raise_if_cache_size_invalid:raise ValueError(").replace("\n", "\n(LLMRayActor pid=77) ").removesuffix("(LLMRayActor pid=77) ") + "\n"),
    Excerpt("ray_actor_unknown", "RL Factory: an actor that died without a word", "unknown", UNKNOWN,
        steps(10, 30, _PPO) + "ray.exceptions.ActorDiedError: The actor died unexpectedly before "
                              "finishing this task.\n\tclass_name: "
                              "create_colocated_worker_cls.<locals>.WorkerDict\n\tactor_id: "
                              "d9cc46\n\tpid: 20174\nThe actor is dead because its worker process "
                              "has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
                              "Worker unexpectedly exits with a connection error code 2. End of "
                              "file. There are some potential root causes. (1) The process is "
                              "killed by SIGKILL by OOM killer due to high memory usage. (2) ray "
                              "stop --force is called. (3) The worker is crashed unexpectedly due "
                              "to SIGSEGV or other unexpected errors.\n"),
    Excerpt("mujoco_gl", "MuJoCo: no display for the renderer", "bad_config", STOP,
        traceback("mujoco.FatalError: an OpenGL platform library has not been loaded into this "
                  "process, this most likely means that a valid OpenGL context has not been "
                  "created before mjr_makeContext was called", "/app/train.py:main:env = "
                                                               "make_env(cfg)", f"{_S}/mujoco/renderer.py:__init__:self._mjr_context = _render.MjrContext(")),
    Excerpt("lerobot_timestamps", "LeRobot: frames that are out of step", "data_error", RESTART,
        traceback("ValueError: One or several timestamps unexpectedly violate the tolerance "
                  "inside episode range.\nThis might be due to synchronization issues during data "
                  "collection.", "/app/lerobot/scripts/train.py:train:dataset = "
                                 "make_dataset(cfg)", "/app/lerobot/datasets/utils.py:check_timestamps_sync:raise ValueError(")),
    # ---- speech ----
    Excerpt("espnet_killed", "ESPnet: the shell says Killed", "killed", RESTART,
        steps(375, 390, _ESPNET) + "bash: line 1:  6508 Killed                  ( asr_train.py "
                                   "--config conf/train.yaml --ngpu 0 ) 2>> exp/train.log >> "
                                   "exp/train.log\nrun.pl: job failed, log is in exp/train.log\n"),
    Excerpt("kaldi_assert", "Kaldi: an assertion of its C++", "abort", RESTART,
        "LOG (train-ctc-parallel:main():train-ctc-parallel.cc:117) Processed 34358484 input "
        "frames\nASSERTION_FAILED (train-ctc-parallel[5.5]:Init():matrix/kaldi-matrix.cc:696) "
        "Assertion failed: (rows > 0 && cols > 0)\nsteps/train_ctc_parallel.sh: line 201: 28490 "
        "Aborted                 train-ctc-parallel --report-step=100\n"),
    Excerpt("kaldi_no_scp", "Kaldi: a feature list that is not there", "missing_file", STOP,
        "steps/train_mono.sh: no such file data/train/feats.scp\n"),
    Excerpt("speechbrain_tensor_nan", "SpeechBrain: a loss that is not finite", "nan", RESTART,
        steps(300, 320) + traceback("ValueError: Loss is not finite and patience is exhausted. To "
                                    "debug, wrap `fit()` with autograd's `detect_anomaly()`, "
                                    "e.g.", "/app/train.py:<module>:asr_brain.fit(epochs)", f"{_S}/speechbrain/core.py:check_loss_isfinite:raise ValueError(")),
    Excerpt("torchaudio_backend", "torchaudio: no reader is installed", "import_error", STOP,
        traceback("RuntimeError: Couldn't find appropriate backend to handle uri /data/a.flac and "
                  "format None.", "/app/train.py:main:wav, sr = torchaudio.load(p)", f"{_S}/torchaudio/_backend/utils.py:dispatcher:raise RuntimeError(")),
    # ---- diffusion ----
    Excerpt("kohya_latents_nan", "kohya: a VAE that overflows", "nan", RESTART,
        "caching latents.\n" + traceback("RuntimeError: NaN detected in latents: "
                                         "/data/img/40_woman/017.png", "/app/train_network.py:train:train_dataset_group.cache_latents(vae)", "/app/library/train_util.py:cache_batch_latents:raise RuntimeError(")),
    Excerpt("kohya_no_images", "kohya: a folder without images", "missing_file", STOP,
        "No data found. Please verify arguments (train_data_dir must be the parent of folders "
        "with images)\n"),
    Excerpt("diffusers_xformers", "diffusers: an optional package that is not there", "import_error", STOP,
        traceback("ModuleNotFoundError: Refer to https://github.com/facebookresearch/xformers for "
                  "more information on how to install xformers", "/app/train_lora.py:main:unet.enable_xformers_memory_efficient_attention()")),
    Excerpt("onetrainer_model", "OneTrainer: a base model of another kind", "checkpoint_mismatch", STOP,
        traceback("Exception: could not load model: /models/base.safetensors", "/app/modules/modelLoader/Loader.py:load:raise Exception(") .replace("Exception: could", "RuntimeError: Error(s) in loading state_dict for UNet2DConditionModel:\n\tsize mismatch for down_blocks.0.weight: copying a param with shape torch.Size([640, 2048]) from checkpoint, the shape in current model is torch.Size([640, 768]).\nException: could")),
    # ---- Julia, C++, Rust, Java ----
    Excerpt("julia_oom", "Julia: a GPU that is full", "device_oom", RESTART,
        steps(20, 60, "[ Info: epoch = {n}  loss = {loss:.3f}") + "ERROR: LoadError: Out of GPU "
                                                                  "memory trying to allocate "
                                                                  "1.526 GiB\nEffective GPU "
                                                                  "memory usage: 99.61% (23.4 "
                                                                  "GiB/23.5 GiB)\nStacktrace:\n "
                                                                  "[1] throw_api_error(res::CUDA.cudaError_enum)\n   @ CUDA ~/.julia/packages/CUDA/lib/cudadrv/libcuda.jl:27\nin expression starting at /app/train.jl:88\n"),
    Excerpt("julia_no_package", "Julia: a package that is not in the environment", "import_error", STOP,
        "ERROR: LoadError: ArgumentError: Package Flux not found in current path.\n- Run `import "
        "Pkg; Pkg.add(\"Flux\")` to install the Flux package.\nStacktrace:\n [1] macro "
        "expansion\n   @ ./loading.jl:1842 [inlined]\nin expression starting at /app/train.jl:1\n"),
    Excerpt("julia_dims", "Julia: arrays that do not fit", "shape_mismatch", STOP,
        "ERROR: LoadError: DimensionMismatch: layer Dense(784 => 128, relu) expects size(input, "
        "1) == 784, but got 28x28x1x64 Array{Float32, 4}\nStacktrace:\n [1] "
        "_size_check(layer::Dense, x::Array)\n   @ Flux "
        "~/.julia/packages/Flux/src/layers/basic.jl:195\nin expression starting at "
        "/app/train.jl:40\n"),
    Excerpt("ggml_alloc", "llama.cpp: buffers beyond the device", "device_oom", STOP,
        "llama_model_load: loading model\nggml_backend_cuda_buffer_type_alloc_buffer: allocating "
        "9866.00 MiB on device 1: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: "
        "failed to allocate CUDA1 buffer of size 10345253120\nllama_init_from_model: failed to "
        "initialize the context: failed to allocate compute pp buffers\n"),
    Excerpt("ggml_assert", "llama.cpp: an assertion of its C", "abort", RESTART,
        "train: data=0000041/0008192 loss=1.20 acc=60.2%\n/src/ggml.c:7019: "
        "GGML_ASSERT(!node->view_src || node->op == GGML_OP_CPY) failed\nAborted (core dumped)\n"),
    Excerpt("ggml_gguf_magic", "llama.cpp: a model file that is not one", "checkpoint_corrupt", STOP,
        "gguf_init_from_file_impl: invalid magic characters: '<!do', expected "
        "'GGUF'\nllama_model_load: error loading model: llama_model_loader: failed to load model "
        "from /models/base.gguf\n"),
    Excerpt("burn_panic", "burn: a Rust panic about shapes", "shape_mismatch", STOP,
        "thread 'main' panicked at burn-tensor/src/tensor/api/check.rs:1400:\n=== Tensor "
        "Operation Error ===\n  Operation: 'Matmul'\n  Reason:\n    1. The inner dimension of "
        "matmul should be the same, but got 512 and 768. Lhs shape [32, 512], rhs shape [768, "
        "10].\n"),
    Excerpt("dl4j_class", "DL4J: a class that is not on the path", "import_error", STOP,
        'Exception in thread "main" java.lang.NoClassDefFoundError: '
        'org/nd4j/linalg/factory/Nd4j\n\tat com.acme.Train.main(Train.java:12)\nCaused by: '
        'java.lang.ClassNotFoundException: org.nd4j.linalg.factory.Nd4j\n'),
    Excerpt("spark_executor_lost", "Petastorm on Spark: an executor is killed for memory", "host_oom", RESTART,
        "26/03/01 10:00:00 ERROR YarnScheduler: Lost executor 7 on c4: Container killed by YARN "
        "for exceeding memory limits. 20.1 GB of 20 GB physical memory used. Consider boosting "
        "spark.executor.memoryOverhead.\n"),
    Excerpt("spark_no_path", "Petastorm on Spark: an input path that is not there", "missing_file", STOP,
        "pyspark.errors.exceptions.captured.AnalysisException: [PATH_NOT_FOUND] Path does not "
        "exist: hdfs://nn/data/train.parquet.\n"),
    # ---- graphs ----
    Excerpt("glt_rpc", "GraphLearn: a call that takes too long", "network_loss", RESTART,
        steps(1, 30, "Rank00 | Step {n:03d} | Loss {loss:.4f} | Train Acc 69.31") + "ERROR:root:coroutine task failed: RPCErr:1:RPC ran for more than set timeout (180000 ms) and will now be marked with an error\n"),
    Excerpt("dgl_graphbolt", "DGL: a native library for another torch", "import_error", STOP,
        traceback("FileNotFoundError: Cannot find DGL C++ graphbolt library at "
                  "/opt/dgl/graphbolt/libgraphbolt_pytorch_2.4.0.so", "/app/train.py:<module>:import dgl", f"{_S}/dgl/graphbolt/__init__.py:load_graphbolt:raise FileNotFoundError(")),
    Excerpt("pyg_index", "PyG: an edge to a node that is not there", "data_error", RESTART,
        traceback("IndexError: Found indices in 'edge_index' that are larger than 2707 (got "
                  "2708). Please ensure that all indices in 'edge_index' point to valid indices "
                  "in the interval [0, 2708) in your node feature matrix and try again.", "/app/train.py:main:out = model(data)", f"{_S}/torch_geometric/nn/conv/message_passing.py:_index_select_safe:raise IndexError(")),
    Excerpt("dgl_part_config", "DistDGL: partitions for another number of machines", "bad_config", STOP,
        traceback("AssertionError: The number of graph partitions has to match the number of "
                  "machines in the cluster.", "/dgl/tools/launch.py:<module>:main()", "/dgl/tools/launch.py:submit_jobs:assert part_metadata['num_parts'] == len(hosts)")),
    # ---- trainers of language models ----
    Excerpt("colossal_wrapped", "ColossalAI: nothing but its launcher's word", "unknown", UNKNOWN,
        "Error: failed to run torchrun --nproc_per_node=4 --nnodes=1 train.py --config config.py "
        "on 127.0.0.1, is localhost: True, exception: Encountered a bad command exit "
        "code!\n\nCommand: 'cd /app && torchrun train.py'\n\nExit code: 1\n\nStdout: already "
        "printed\n\nStderr: already printed\n"),
    Excerpt("colossal_plugin", "ColossalAI: a plugin and a precision that do not go together", "bad_config", STOP,
        traceback("AssertionError: only support fp16 or bf16 precision for the low level zero "
                  "plugin", "/app/train.py:main:plugin = build(args)", f"{_S}/colossalai/booster/plugin/low_level_zero_plugin.py:__init__:assert precision in SUPPORTED_PRECISION")),
    Excerpt("torchtitan_degree", "torchtitan: degrees that do not make the world", "bad_config", STOP,
        "".join(f"[rank{r}]:{line}\n" for r in (0, 1) for line in traceback("AssertionError: Invalid parallel dims: dp_replicate(1) * dp_shard(4) * cp(1) * tp(4) * pp(1) != WORLD_SIZE(8)", "/app/torchtitan/train.py:main:parallel_dims = ParallelDims(", "/app/torchtitan/distributed/parallel_dims.py:_validate:assert dp * cp * tp * pp == self.world_size").splitlines())),
    Excerpt("torchtune_component", "torchtune: a component that is not there", "bad_config", STOP,
        traceback("torchtune.config._errors.InstantiationError: Error loading "
                  "'torchtune.models.llama9'.\nAre you sure that 'torchtune.models.llama9' is "
                  "importable?", "/app/recipes/full_finetune.py:recipe_main:config.instantiate(cfg.model)", f"{_S}/torchtune/config/_instantiate.py:instantiate:raise InstantiationError(")),
    Excerpt("nanotron_ckpt", "nanotron: a topology that a checkpoint lacks", "checkpoint_mismatch", STOP,
        traceback("AssertionError: Checkpoint was saved with tensor parallel size 4, but the "
                  "current one is 8: resharding the optimizer is not supported", "/app/run_train.py:<module>:trainer = DistributedTrainer(config)", "/app/nanotron/serialize/optimizer.py:load_optimizer:assert ckp_tp_size == tp")),
    Excerpt("unsloth_gpu", "Unsloth: a host without a GPU", "bad_config", STOP,
        traceback("NotImplementedError: Unsloth cannot find any torch accelerator? You need a "
                  "GPU.", "/app/train.py:<module>:from unsloth import FastLanguageModel", f"{_S}/unsloth/device_type.py:get_device_type:raise NotImplementedError(")),
    Excerpt("litgpt_dir", "LitGPT: a checkpoint directory that lacks files", "missing_file", STOP,
        "Error: checkpoint_dir '/ckpt/pythia' is missing the files: ['lit_model.pth', "
        "'model_config.yaml'].\nFind download instructions at https://example.invalid/tutorials\n"),
    Excerpt("peft_targets", "PEFT: adapters for modules that are not there", "bad_config", STOP,
        traceback("ValueError: Target modules {'q_projj', 'v_projj'} not found in the base model. "
                  "Please check the target modules and try again.", "/app/train.py:main:model = "
                                                                    "get_peft_model(model, cfg)", f"{_S}/peft/tuners/tuners_utils.py:inject_adapter:raise ValueError(")),
    Excerpt("swift_dataset", "ms-swift: rows that hold no messages", "data_error", RESTART,
        traceback("ValueError: Row 8112 has no 'messages' after preprocessing: {'query': None}", "/app/swift/cli/sft.py:main:train_ds = load_dataset(args)", "/app/swift/llm/dataset/preprocessor/core.py:batched_preprocess:raise ValueError(")),
    Excerpt("fsdp2_mixed_mesh", "FSDP2: two meshes in one group", "user_exception", RESTART,
        steps(1, 5) + traceback("RuntimeError: aten.mul.Tensor got DTensors from different device "
                                "meshes, not supported", "/app/train.py:train_step:loss.backward()")),
    Excerpt("te_fp8", "Transformer Engine: an arch without FP8", "bad_config", STOP,
        traceback("AssertionError: Device compute capability 8.9 or higher required for FP8 "
                  "execution.", "/app/train.py:main:with te.fp8_autocast(enabled=True):", f"{_S}/transformer_engine/pytorch/fp8.py:fp8_autocast_enter:assert fp8_available, reason_for_no_fp8")),
    Excerpt("mlx_metal", "MLX: the Metal command buffer has no memory", "device_oom", RESTART,
        steps(100, 130, "Iter {n}: Train loss {loss:.3f}, Learning Rate 1.000e-05, It/sec 0.61, "
                        "Peak mem 28.1 GB") + "libc++abi: terminating due to uncaught exception "
                                              "of type std::runtime_error: [METAL] Command buffer "
                                              "execution failed: Insufficient Memory "
                                              "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n"),
    # ---- federated, pipelines, platforms ----
    Excerpt("flower_unavailable", "Flower: a server that is gone", "network_loss", RESTART,
        "INFO flwr 2026-03-01 10:00:00,000 | Received: train message\n" + traceback('grpc._channel._MultiThreadedRendezvous: <_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "Socket closed"\n>', "/app/client.py:<module>:fl.client.start_client(")),
    Excerpt("nvflare_timeout", "NVFlare: a site that stops answering", "network_loss", RESTART,
        steps(1, 30) + "2026-03-01 10:00:00,000 - ClientManager - ERROR - [identity=server, "
                       "run=1]: site-3 missed heartbeats for 600 seconds: client is considered "
                       "dead\n2026-03-01 10:00:00,100 - ServerRunner - ERROR - Aborting current "
                       "RUN due to FATAL_SYSTEM_ERROR received: required client site-3 "
                       "disconnected\n"),
    Excerpt("metaflow_timeout", "Metaflow: a step beyond its time", "time_limit", STOP,
        steps(1, 40, "2026-03-01 10:00:00.000 [812/train/7 (pid 99)] step {n} loss {loss:.3f}") + "2026-03-01 11:00:00.000 [812/train/7 (pid 99)] <flow Train step train> failed:\n2026-03-01 11:00:00.000 [812/train/7 (pid 99)] Timeout has been exceeded: Step train timed out after 1 hours\n"),
    Excerpt("flyte_oom", "Flyte: its container is killed for memory", "host_oom", RESTART,
        "[1/1] currentAttempt done. Last Error: USER::Pod failed. No message received from "
        "kubernetes.\n[a7x-n0-0] terminated with exit code (137). Reason [OOMKilled]. Message: "
        "\n.\n"),
    Excerpt("argo_deadline", "Argo: a workflow beyond its deadline", "time_limit", STOP,
        steps(1, 30) + 'time="2026-03-01T10:00:00.000Z" level=info msg="Step exceeded its '
                       'deadline" namespace=ml workflow=train-7\nPod was active on the node '
                       'longer than the specified deadline\n'),
    Excerpt("volcano_unschedulable", "Volcano: more than the queue has", "bad_config", STOP,
        "Warning  Unschedulable  12s  volcano  3/4 tasks in gang unschedulable: pod group is not "
        "ready, 4 Pending, 4 minAvailable; Pending: 4 Unschedulable. queue resource quota "
        "insufficient: insufficient nvidia.com/gpu\n"),
    Excerpt("clearml_abort", "ClearML: somebody aborts the task", "cancelled", STOP,
        steps(1, 40) + "2026-03-01 10:00:00,000 - clearml.Task - WARNING - ### TASK STOPPED - "
                       "USER ABORTED - STATUS CHANGED ###\nClearML Terminating local execution "
                       "process\n"),
    Excerpt("kubeflow_exit", "Kubeflow: only an exit code", "unknown", UNKNOWN,
        '1.708507856644096e+09\tDEBUG\tevents\tError pod pytorch-simple-worker-0 container '
        'pytorch exitCode: 1 terminated message: \t{"type": "Warning", "reason": "Error"}\n'),
    Excerpt("optuna_storage", "Optuna: a database that is locked", "storage_fault", RESTART,
        steps(1, 20) + traceback("optuna.exceptions.StorageInternalError: An exception is raised "
                                 "during the commit. This typically happens due to invalid data "
                                 "in the commit, e.g. exceeding max length.", "/app/tune.py:<module>:study.optimize(objective)").replace("Traceback", "sqlite3.OperationalError: database is locked\n\nThe above exception was the direct cause of the following exception:\n\nTraceback", 1)),
    Excerpt("dvc_missing", "DVC: data that was never pushed", "missing_file", STOP,
        "ERROR: failed to pull data from the cloud - Checkout failed for following "
        "targets:\ndata/train\nIs your cache up to date?\n"),
    Excerpt("hf_datasets_split", "datasets: a split that is not there", "bad_config", STOP,
        traceback('ValueError: Unknown split "validation_matched". Should be one of [\'train\', '
                  '\'validation\'].', "/app/train.py:main:ds = load_dataset(cfg.data, "
                                      "split=cfg.split)", f"{_S}/datasets/arrow_reader.py:_rel_to_abs_instr:raise ValueError(")),
    Excerpt("seqio_mixture", "T5X: a task that is not registered", "bad_config", STOP,
        traceback("ValueError: No Task or Mixture found with name 'c4_v300_span'. Available:\n - "
                  "c4_v220_span", "/app/t5x/train.py:main:train_using_gin()", f"{_S}/seqio/dataset_providers.py:get_mixture_or_task:raise ValueError(")),
    # ---- hosts, devices, links ----
    Excerpt("poplar_oom", "Graphcore: a program larger than its tiles", "device_oom", STOP,
        traceback("popart_exception: Out of memory on tile 1184: 1187264 bytes used but tiles "
                  "only have 638976 bytes of memory", "/app/train.py:main:model.compile()", f"{_S}/poptorch/_poplar_executor.py:_compile:self._executable = poptorch_core.compile(")),
    Excerpt("cerebras_wafer", "Cerebras: a system that fails", "hardware_fault", RESTART,
        steps(10, 40) + "2026-03-01 10:00:00,000 ERROR:   Job wsjob-77 failed: system systemf12 "
                        "encountered a hardware fault: wafer health check failed\n"),
    Excerpt("nvsm_fabric", "fabric manager: the switch is not ready", "hardware_fault", RESTART,
        traceback("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some "
                  "cuda functions before calling NumCudaDevices() that might have already set an "
                  "error? Error 802: system not yet initialized", "/app/train.py:main:torch.cuda.set_device(rank)")),
    Excerpt("efa_provider", "EFA: a provider that aborts a transfer", "link_fault", RESTART,
        steps(10, 40) + "c4:881:900 [2] nccl_net_ofi_rdma_process_cq:1234 NCCL WARN NET/OFI "
                        "Request completed with error. RC: 5. Error: unreachable remote. "
                        "prov_errno: 4119 (Unreachable remote)\n"),
    Excerpt("bus_off", "the PCIe bus reports a device gone", "hardware_fault", RESTART,
        steps(10, 40) + "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received: "
                        "0000:3b:00.0\nnvidia 0000:3b:00.0: GPU has fallen off the bus\n"),
    Excerpt("inode_quota", "Lustre: no more files for this group", "disk_full", STOP,
        traceback("OSError: [Errno 122] Disk quota exceeded: '/lustre/exp/run1/ckpt-0'", "/app/train.py:main:os.makedirs(out)")),
    Excerpt("weka_gone", "a mount that went away", "storage_fault", RESTART,
        steps(10, 300) + traceback("OSError: [Errno 108] Cannot send after transport endpoint "
                                   "shutdown: '/weka/data/shard_77.bin'", "/app/train.py:main:batch = next(it)")),
    Excerpt("license_server", "a solver without its licence", "permission_denied", RESTART,
        traceback("gurobipy.GurobiError: HostID mismatch (licensed to 7a, hostid is 9b): licence "
                  "expired 2026-01-01", "/app/train.py:main:m = gp.Model()")),
    Excerpt("thread_limit", "a host that starts no more threads", "user_exception", RESTART,
        traceback("RuntimeError: can't start new thread", "/app/train.py:main:pool = "
                                                          "ThreadPool(256)")),
    Excerpt("tqdm_only", "a log that ends in a bar", "unknown", UNKNOWN,
        " 41%|████      | 4100/10000 [1:03:00<1:34:10,  1.06it/s, loss=0.412]\n"),
)  # fmt: skip
