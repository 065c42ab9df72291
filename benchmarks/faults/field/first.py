"""The first set: measured once, then learned from."""

from aorta.attribution import RankEnd
from benchmarks.faults.field import RESTART, STOP, UNKNOWN, Excerpt, steps, traceback

_MAIN = "/work/train.py:main:trainer.fit(model)"
_SITE = "/opt/conda/lib/python3.10/site-packages"

EXCERPTS: tuple[Excerpt, ...] = (
    # ---- JAX, XLA, TPU ----
    Excerpt("jax_oom_compile", "JAX report: allocation while compiling", "device_oom", RESTART,
        "2026-03-02 10:11:12.345678: W external/xla/xla/tsl/framework/bfc_allocator.cc:497] "
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 38.15GiB (rounded to "
        "40960000000)requested by op\n"
        "2026-03-02 10:11:12.400000: E external/xla/xla/pjrt/pjrt_stream_executor_client.cc:3067] "
        "Execution of replica 0 failed: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 40960000000 bytes.\n"
        + traceback("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory "
                    "while trying to allocate 40960000000 bytes.", "/work/run.py:<module>:app.run(main)", "/work/run.py:main:state, loss = p_train_step(state, batch)")),
    Excerpt("jax_heartbeat", "JAX multi-host report: one host lost", "network_loss", RESTART,
        "E0302 10:11:12.345678    4242 coordination_service_agent.cc:332] Polled an error from "
        "coordination service (this can be an error from this or another task).\n"
        "F0302 10:11:12.345700    4242 client.h:77] Terminating process because the JAX "
        "distributed service detected fatal errors. This most likely indicates that another task "
        "died; see the other task logs for more details. "
        "absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending "
        "heartbeats):\n/job:jax_worker/replica:0/task:5\nThe tasks have crashed.\n", root_ranks=(5,)),
    Excerpt("jax_init_deadline", "JAX report: a cluster that never meets", "rendezvous_error", RESTART,
        traceback("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Deadline "
                  "Exceeded\nAdditional GRPC error information from remote target "
                  "unknown_target_for_coordination_leader while calling "
                  "/tensorflow.CoordinationService/RegisterTask:\n:{\"created\":\"@1712965181.6\",\"grpc_status\":4}",
                  "/work/train.py:<module>:jax.distributed.initialize()", f"{_SITE}/jax/_src/distributed.py:initialize:self.client.connect()")),
    Excerpt("jax_shape", "JAX report: arrays that do not fit", "shape_mismatch", STOP,
        traceback("TypeError: add got incompatible shapes for broadcasting: (128, 512), (128, "
                  "768).", "/work/train.py:<module>:main()", "/work/model.py:__call__:return x + "
                                                             "residual")),
    Excerpt("tpu_halt", "TPU report: a core that halted", "hardware_fault", RESTART,
        steps(500, 540, "completed step: {n}, seconds: 1.92, loss: {loss:.3f}")
        + traceback("jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Accelerator device halted "
                    "prematurely, perhaps due to an on-device check-failure. Node 0 halted "
                    "unexpectedly at tag:pc TensorCoreSequencer:1:0x1d9", "/work/train.py:main:metrics = step(state)")),
    Excerpt("orbax_tree", "Orbax report: another model's checkpoint", "checkpoint_mismatch", STOP,
        traceback("ValueError: Dict key mismatch; expected keys: ['decoder', 'embedder']; dict: "
                  "{'params': {}}.", "/work/train.py:main:state = restore(manager)", f"{_SITE}/orbax/checkpoint/utils.py:_restore:raise ValueError")),
    Excerpt("jax_nan", "JAX report: debug_nans", "nan", RESTART,
        steps(1, 60, "step {n} loss={loss:.3f}") + traceback("FloatingPointError: invalid value "
                                                             "(nan) encountered in "
                                                             "jit(train_step)", "/work/train.py:main:loss = train_step(state)")),
    Excerpt("maxtext_config", "MaxText report: a key that does not exist", "bad_config", STOP,
        traceback("ValueError: Key ici_tensor_paralelism was passed at the command line but isn't "
                  "in config.", "/work/MaxText/train.py:main:pyconfig.initialize(argv)", "/work/MaxText/pyconfig.py:_validate_no_keys_overwritten_twice:raise ValueError")),
    # ---- Ray ----
    Excerpt("ray_oom", "Ray report: the memory monitor", "host_oom", RESTART,
        "(RayTrainWorker pid=4242, ip=10.1.0.7) {'loss': 1.12, 'grad_norm': 0.4, 'learning_rate': "
        "1e-05, 'epoch': 0.4}\n"
        "(raylet, ip=10.1.0.7) [2026-03-02 10:11:12,345 E 77 77] (raylet) node_manager.cc:3064: 1 "
        "Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to "
        "other reasons at node (ID: 9f, IP: 10.1.0.7) over the last time period.\n"
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n"),
    Excerpt("ray_import", "Ray Train report: a module missing on workers", "import_error", STOP,
        "2026-03-02 10:11:12,345\tERROR tune_controller.py:1331 -- Trial task failed for trial "
        "TorchTrainer_551a2_00000\n"
        "ray.exceptions.RayTaskError(ModuleNotFoundError): ray::_Inner.train() (pid=4242, "
        "ip=10.1.0.7, actor_id=ab)\n"
        '  File "/opt/ray/train/trainer.py", line 57, in check_for_failure\n    '
        'ray.get(object_ref)\n'
        "ModuleNotFoundError: No module named 'peft'\n"),
    Excerpt("ray_node_died", "Ray report: a spot node gone", "hardware_fault", RESTART,
        "(autoscaler +12m3s) Tip: use `ray status` to view detailed cluster status.\n"
        "(raylet) The node with node id: 3fa8 and address: 10.1.0.9 and node name: 10.1.0.9 has "
        "been marked dead because the detector has missed too many heartbeats from it. This can "
        "happen when a raylet crashes unexpectedly or has lagging heartbeats.\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this "
        "task.\n\tclass_name: RayTrainWorker\n\tip: 10.1.0.9\nThe actor is dead because its node "
        "has died. Node Id: 3fa8\n"),
    Excerpt("ray_worker_segv", "Ray report: a worker's own crash under its prefix", "segfault", RESTART,
        "(RayTrainWorker pid=4242) step 12 loss 0.4\n(RayTrainWorker pid=4242) *** SIGSEGV "
        "received at time=1772446272 on cpu 33 ***\n(RayTrainWorker pid=4242) PC: @     0x7f2a  "
        "(unknown)  c10::cuda::ExchangeDevice()\n"
        "(RayTrainWorker pid=4242) Fatal Python error: Segmentation fault\n(raylet) A worker died "
        "or was killed while executing a task by an unexpected system error. Worker exit type: "
        "SYSTEM_ERROR\n"),
    # ---- DeepSpeed, Megatron, NeMo, Lightning, HF ----
    Excerpt("ds_batch", "DeepSpeed report: batch sizes", "bad_config", STOP,
        "[2026-03-02 10:11:12,345] [INFO] [comm.py:652:init_distributed] cdb=None\n"
        + traceback("AssertionError: Check batch related parameters. train_batch_size is not "
                    "equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 2 * "
                    "4", "/work/train.py:main:engine, *_ = deepspeed.initialize(args=args)", f"{_SITE}/deepspeed/runtime/config.py:_batch_assertion:assert train_batch == micro_batch * grad_acc * self.world_size")
        + "[2026-03-02 10:11:15,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess "
          "4242\n[2026-03-02 10:11:15,001] [ERROR] [launch.py:325:sigkill_handler] "
          "['/usr/bin/python3', '-u', 'train.py', '--local_rank=3'] exits with return code = 1\n"),
    Excerpt("ds_minus_nine", "DeepSpeed report: killed without a word", "killed", RESTART,
        "[2026-03-02 10:11:12,345] [INFO] [stage3.py:130:__init__] initialized "
        "DeepSpeedZeroOptimizer_Stage3\n[2026-03-02 10:12:15,000] [INFO] "
        "[launch.py:315:sigkill_handler] Killing subprocess 4242\n"
        "[2026-03-02 10:12:15,300] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python3', "
        "'-u', 'main.py', '--local_rank=1', '--zero_stage', '3'] exits with return code = -9\n"),
    Excerpt("ds_loss_scale", "DeepSpeed report: fp16 overflow to the end", "nan", RESTART,
        steps(1, 40, "[2026-03-02 10:11:12,345] [INFO] [logging.py:96:log_dist] [Rank 0] "
                     "step={n}, skipped=3, lr=[1e-05], mom=[[0.9, 0.999]]")
        + traceback("Exception: Current loss scale already at minimum - cannot decrease scale "
                    "anymore. Exiting run.", "/work/train.py:main:engine.step()", f"{_SITE}/deepspeed/runtime/fp16/loss_scaler.py:update_scale:raise Exception(")),
    Excerpt("ds_nvme", "DeepSpeed report: async I/O library missing", "import_error", STOP,
        "[WARNING]  async_io requires the dev libaio .so object and headers but these were not "
        "found.\n"
        + traceback("ImportError: /root/.cache/torch_extensions/py310_cu121/cpu_adam/cpu_adam.so: "
                    "cannot open shared object file: No such file or directory", "/work/train.py:main:opt = DeepSpeedCPUAdam(params)", f"{_SITE}/deepspeed/ops/op_builder/builder.py:load:return self.jit_load(verbose)")),
    Excerpt("megatron_divisible", "Megatron-LM report: parallel sizes", "bad_config", STOP,
        "using world size: 12, data-parallel size: 1\n" + traceback("AssertionError: world size "
                                                                    "(12) is not divisible by "
                                                                    "tensor parallel size (8) "
                                                                    "times pipeline parallel size "
                                                                    "(1)", "/work/pretrain_gpt.py:<module>:pretrain(", "/work/megatron/training/arguments.py:validate_args:assert args.world_size % total_model_size == 0")),
    Excerpt("megatron_nan", "Megatron-LM report: NaN in the loss", "nan", RESTART,
        steps(100, 130, " [2026-03-02 10:11:12] iteration      {n}/  500000 | consumed samples:   "
                        "     51200 | elapsed time per iteration (ms): 912.1 | lm loss: "
                        "{loss:.6E} |")
        + "[rank3]: " + traceback("RuntimeError: Rank 3, node gpu-n4, device 3, iteration 131: "
                                  "Unexpected result nan (message='found NaN in local forward "
                                  "loss calculation')", "/work/pretrain_gpt.py:loss_func:check_for_nan").replace("\n", "\n[rank3]: "), root_ranks=(3,)),
    Excerpt("megatron_ckpt_args", "Megatron-LM report: checkpoint of another shape", "checkpoint_mismatch", STOP,
        " loading checkpoint from /ckpt/gpt at iteration 5000\n" + traceback("AssertionError: num_layers value from checkpoint (24) is not equal to the input argument value (32).", "/work/pretrain_gpt.py:<module>:pretrain(", "/work/megatron/training/checkpointing.py:_compare:assert checkpoint_value == args_value")),
    Excerpt("nemo_missing_manifest", "NeMo report: a manifest that is not there", "missing_file", STOP,
        "[NeMo I 2026-03-02 10:11:12 exp_manager:421] Experiments will be logged at "
        "/results\n[NeMo E 2026-03-02 10:11:13 train:88] Error executing job with overrides: "
        "['trainer.devices=8']\n"
        + traceback("FileNotFoundError: [Errno 2] No such file or directory: "
                    "'/data/train_manifest.json'", "/work/speech_to_text.py:main:model.setup_training_data()", f"{_SITE}/nemo/collections/asr/parts/manifest.py:item_iter:with open(manifest) as f:")),
    Excerpt("lightning_devices", "Lightning report: more GPUs asked than there are", "bad_config", STOP,
        traceback("lightning.fabric.utilities.exceptions.MisconfigurationException: You requested "
                  "gpu: [0, 1, 2, 3]\n But your machine only has: [0, 1]", "/work/train.py:main:trainer = L.Trainer(devices=4)", f"{_SITE}/lightning/fabric/utilities/device_parser.py:_sanitize_gpu_ids:raise MisconfigurationException(")),
    Excerpt("lightning_oom_epoch3", "Lightning report: memory in a later epoch", "device_oom", RESTART,
        "Epoch 0: 100%|██████████| 115/115 [01:10<00:00,  1.62it/s, v_num=3, "
        "train_loss=0.91]\nEpoch 3:  45%|████▌     | 52/115 [00:31<00:38,  1.63it/s, v_num=3, "
        "train_loss=0.4]"
        + traceback("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. "
                    "GPU 0 has a total capacity of 23.65 GiB of which 1.1 GiB is free.", "/work/train.py:main:trainer.fit(lit)", f"{_SITE}/lightning/pytorch/loops/fit_loop.py:advance:self.epoch_loop.run()")),
    Excerpt("hf_oom_zero", "HF Trainer report: memory at the first step", "device_oom", STOP,
        "Loading checkpoint shards: 100%|██████████| 8/8 [00:21<00:00,  2.6s/it]\n***** Running "
        "training *****\n  Num examples = 52,002\n  Total optimization steps = 4,875\n  0%|       "
        "   | 0/4875 [00:00<?, ?it/s]"
        + traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU "
                    "0 has a total capacity of 23.69 GiB of which 41.25 MiB is free.", "/work/finetune.py:<module>:train()", f"{_SITE}/transformers/trainer.py:train:return inner_training_loop(", f"{_SITE}/transformers/trainer.py:training_step:loss = self.compute_loss(model, inputs)")),
    Excerpt("hf_oom_hours", "HF Trainer report: memory after hours", "device_oom", RESTART,
        "{'loss': 0.9, 'grad_norm': 0.7, 'learning_rate': 1e-05, 'epoch': 1.91}\n{'loss': 0.8, "
        "'grad_norm': 0.6, 'learning_rate': 9e-06, 'epoch': 1.94}\n"
        + traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. "
                    "GPU 0 has a total capacity of 79.15 GiB of which 300.00 MiB is free.", "/work/finetune.py:<module>:trainer.train()", f"{_SITE}/torch/autograd/__init__.py:backward:_engine_run_backward(")),
    Excerpt("hf_gated", "HF hub report: a gated model", "permission_denied", RESTART,
        traceback("huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: "
                  "Root=1-66)\nCannot access gated repo for url "
                  "https://hub.invalid/meta/model/resolve/main/config.json.", "/work/finetune.py:<module>:model = load()", f"{_SITE}/huggingface_hub/utils/_http.py:hf_raise_for_status:raise _format(GatedRepoError")),
    Excerpt("hf_offline", "HF hub report: no network", "network_loss", RESTART,
        traceback("OSError: We couldn't connect to 'https://hub.invalid' to load this file, "
                  "couldn't find it in the cached files and it looks like x/y is not the path to "
                  "a directory containing a file named config.json.", "/work/finetune.py:<module>:tok = AutoTokenizer.from_pretrained(name)")),
    Excerpt("hf_arg", "HF report: a training argument that does not exist", "bad_config", STOP,
        traceback("TypeError: TrainingArguments.__init__() got an unexpected keyword argument "
                  "'evaluation_strategy'", "/work/finetune.py:main:args = "
                                           "TrainingArguments(output_dir=out, "
                                           "evaluation_strategy='steps')")),
    Excerpt("hf_parser", "HF report: HfArgumentParser", "bad_arguments", STOP,
        "usage: run_clm.py [-h] --model_name_or_path MODEL\nrun_clm.py: error: argument "
        "--learning_rate: invalid float value: '2e-5,'\n"),
    Excerpt("hf_tokenizer_data", "HF datasets report: a JSON line that is broken", "data_error", RESTART,
        "Generating train split: 1200 examples [00:01, 900.1 examples/s]\n" + traceback("datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset", "/work/prep.py:<module>:ds = load_dataset('json', data_files=files)", f"{_SITE}/datasets/builder.py:_prepare_split_single:raise DatasetGenerationError")),
    # ---- Slurm ----
    Excerpt("srun_k_segv", "srun -K after a crash of one task", "segfault", RESTART,
        steps(1, 12) + "srun: error: gpu-n2: task 1: Segmentation fault (core dumped)\nsrun: "
                       "Terminating StepId=4188123.0\nslurmstepd: error: *** STEP 4188123.0 ON "
                       "gpu-n1 CANCELLED AT 2026-03-02T10:11:12 ***\nsrun: error: gpu-n1: task 0: "
                       "Terminated\n", root_ranks=(1,)),
    Excerpt("slurm_scancel", "a person's scancel of the job", "cancelled", STOP,
        steps(100, 112) + "slurmstepd: error: *** JOB 4188123 ON gpu-n1 CANCELLED AT "
                          "2026-03-02T10:11:12 ***\nsrun: Job step aborted: Waiting up to 32 "
                          "seconds for job step to finish.\nslurmstepd: error: *** STEP 4188123.0 "
                          "ON gpu-n1 CANCELLED AT 2026-03-02T10:11:12 ***\nsrun: error: gpu-n1: "
                          "task 0: Terminated\nsrun: error: gpu-n2: task 1: Terminated\n"),
    Excerpt("slurm_time", "a job at its time limit", "time_limit", STOP,
        steps(9000, 9012) + "slurmstepd: error: *** JOB 77 ON gpu-n1 CANCELLED AT "
                            "2026-03-02T10:11:12 DUE TO TIME LIMIT ***\nsrun: Job step aborted: "
                            "Waiting up to 92 seconds for job step to finish.\n"),
    Excerpt("slurm_oom", "slurmstepd's word on memory", "host_oom", RESTART,
        "Epoch: [0][479/1736]\t Loss 0.6319 MAE 0.5976\nEpoch: [0][511/1736]\t Loss 0.5117 MAE "
        "0.6075\n/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed                  "
        "python3 main.py --epochs 400\nslurmstepd: error: Detected 1 oom-kill event(s) in "
        "StepId=191.batch cgroup. Some of your processes may have been killed by the cgroup "
        "out-of-memory handler.\n"),
    Excerpt("slurm_import_then_cancel", "an import error under srun, which then cancels the step", "import_error", STOP,
        traceback("ModuleNotFoundError: No module named 'einops'", "/work/train.py:<module>:from "
                                                                   "model import Net", "/work/model.py:<module>:from einops import rearrange")
        + traceback("ModuleNotFoundError: No module named 'einops'", "/work/train.py:<module>:from model import Net", "/work/model.py:<module>:from einops import rearrange")
        + "srun: error: gpu-n1: tasks 0-1: Exited with exit code 1\nsrun: Terminating "
          "StepId=77.0\nslurmstepd: error: *** STEP 77.0 ON gpu-n1 CANCELLED AT "
          "2026-03-02T10:11:12 ***\n"),
    Excerpt("slurm_node_fail", "the controller lost a node", "hardware_fault", RESTART,
        steps(400, 420) + "srun: error: Node failure on gpu-n7\nsrun: Job step aborted: Waiting "
                          "up to 32 seconds for job step to finish.\nslurmstepd: error: *** JOB 5 "
                          "ON gpu-n1 CANCELLED AT 2026-03-02T10:11:12 DUE TO NODE FAILURE, SEE "
                          "SLURMCTLD LOG FOR DETAILS ***\n"),
    Excerpt("slurm_requeue", "submitit: preempted and requeued", "preempted", RESTART,
        "submitit WARNING (2026-03-02 02:06:11,453) - Caught signal SIGUSR2 on gpu-n1: this job "
        "is preempted.\nslurmstepd: error: *** JOB 608 ON gpu-n1 CANCELLED AT 2026-03-02T02:06:12 "
        "DUE TO JOB REQUEUE ***\nsubmitit WARNING (2026-03-02 02:06:12,299) - Bypassing signal "
        "SIGTERM\nsrun: error: gpu-n1: tasks 2-3: Exited with exit code 1\n"),
    Excerpt("slurm_bad_partition", "a submission that is refused", "bad_config", STOP,
        "srun: error: Unable to allocate resources: Invalid account or account/partition "
        "combination specified\n"),
    # ---- Kubernetes, docker ----
    Excerpt("k8s_oomkilled", "kubectl describe of a pod", "host_oom", RESTART,
        "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n "
        "     Started:      Mon, 02 Mar 2026 10:11:12 +0000\n"),
    Excerpt("k8s_evicted", "kubectl events: memory pressure", "host_oom", RESTART,
        "LAST SEEN   TYPE      REASON    OBJECT             MESSAGE\n2m          Warning   "
        "Evicted   pod/train-worker-3   The node was low on resource: memory. Threshold quantity: "
        "100Mi, available: 48Mi. Container pytorch was using 401Gi, request is 0.\n"),
    Excerpt("k8s_preempted", "kubectl events: a higher priority", "preempted", RESTART,
        steps(40, 60, "[pod/train-worker-0/pytorch] step {n} loss {loss:.3f}") + "3m   Normal   Preempted   pod/train-worker-0   Preempted by pod 9d1 on node gpu-7\n"),
    Excerpt("k8s_image", "kubectl events: an image that does not exist", "bad_config", STOP,
        "Warning  Failed     12s (x2 over 30s)  kubelet  Failed to pull image "
        "\"reg.invalid/train:v9\": rpc error: code = NotFound desc = failed to pull and unpack "
        "image: not found\nWarning  Failed     12s (x2 over 30s)  kubelet  Error: "
        "ErrImagePull\nNormal   BackOff    1s (x2 over 29s)   kubelet  Error: ImagePullBackOff\n"),
    Excerpt("docker_137", "docker compose: a container ends", "killed", RESTART,
        "trainer-1  | step 4 loss 0.61\ntrainer-1  | step 5 loss 0.60\ntrainer-1 exited with code "
        "137\n"),
    Excerpt("docker_no_gpu", "docker run without the toolkit", "bad_config", RESTART,
        "docker: Error response from daemon: could not select device driver \"nvidia\" with "
        "capabilities: [[gpu]].\n"),
    Excerpt("k8s_shm", "a pod with 64 MB of shared memory", "host_oom", RESTART,
        "[pod/train-worker-0/pytorch] ERROR: Unexpected bus error encountered in worker. This "
        "might be caused by insufficient shared memory (shm).\n"
        + "".join(f"[pod/train-worker-0/pytorch] {row}\n" for row in traceback("RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.", _MAIN).splitlines())),
    # ---- ROCm, drivers, links ----
    Excerpt("rocm_fault", "ROCm report: a page that is not there", "illegal_access", RESTART,
        steps(1, 9) + "Memory access fault by GPU node-1 (Agent handle: 0x5606b7d8a3c0) on "
                      "address 0x7f8e4c000000. Reason: Unknown.\nAborted (core dumped)\n"),
    Excerpt("rocm_ring", "kernel log beside a job that hung on an MI GPU", "hardware_fault", RESTART,
        steps(1, 9) + traceback("RuntimeError: HIP error: unspecified launch failure", _MAIN), kernel="[81234.567890] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.1.0 timeout, signaled seq=51, emitted seq=53\n[81234.600001] amdgpu 0000:43:00.0: amdgpu: GPU reset begin!\n"),
    Excerpt("rocm_hang", "ROCm report: hardware exception", "hardware_fault", RESTART,
        steps(1, 30) + "HW Exception by GPU node-6 (Agent handle: 0x55a3) reason :GPU "
                       "Hang\nAborted\n"),
    Excerpt("cuda_802", "a DGX without its fabric manager", "hardware_fault", RESTART,
        traceback("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some "
                  "cuda functions before calling NumCudaDevices() that might have already set an "
                  "error? Error 802: system not yet initialized", "/work/train.py:<module>:torch.cuda.set_device(rank)")),
    Excerpt("xid_chain", "dmesg: one fault and its echoes", "hardware_fault", RESTART,
        steps(700, 720) + "[rank5]:[E302 10:11:12.345 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID "
                          "0(default_pg) Rank 5] Process group watchdog thread terminated with "
                          "exception: CUDA error: unspecified launch failure\n",
        kernel="[91.2] NVRM: Xid (PCI:0000:9d:00): 94, pid=4242, name=python, Contained: SM "
               "(0x1). RST: No, D-RST: No\n[91.3] NVRM: Xid (PCI:0000:9d:00): 45, pid=4242, "
               "name=python, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x2c004\n", root_ranks=(5,)),
    Excerpt("ib_retry", "NCCL over InfiniBand: a port gone", "link_fault", RESTART,
        steps(700, 720) + "gpu-n4:812:1310 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got "
                          "completion from peer 10.4.0.9<48612> with error 12, opcode 0, len 0, "
                          "vendor err 129 (Recv) localGid fe80:: remoteGid fe80::\n"
        "[rank3]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, "
        "remote process exited or there was a network error, NCCL version 2.20.5\n"),
    Excerpt("nvidia_driver", "a node whose driver was upgraded under it", "hardware_fault", RESTART,
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: "
        "550.90\n" + traceback("RuntimeError: No CUDA GPUs are available", "/work/train.py:<module>:torch.cuda.init()")),
    # ---- storage ----
    Excerpt("lustre_eio", "Lustre: a server that fails over", "storage_fault", RESTART,
        steps(8000, 8030) + traceback("OSError: [Errno 5] Input/output error: "
                                      "'/lustre/data/shard_0042.bin'", "/work/train.py:main:for "
                                                                       "batch in loader:", "/work/data.py:read_shard:buf = f.read(n)")),
    Excerpt("nfs_stale", "NFS: a handle gone stale while loading", "storage_fault", RESTART,
        traceback("OSError: [Errno 116] Stale file handle: '/nfs/ckpt/latest'", "/work/train.py:main:ckpt = torch.load(path)")),
    Excerpt("s3_slowdown", "S3: throttled", "storage_fault", RESTART,
        steps(1, 4) + traceback("botocore.exceptions.ClientError: An error occurred (SlowDown) "
                                "when calling the GetObject operation (reached max retries: 4): "
                                "Please reduce your request rate.", "/work/data.py:fetch:self.s3.get_object(Bucket=b, Key=k)")),
    # ---- torch ----
    Excerpt("elastic_sigkill", "torchrun's table", "killed", RESTART,
        steps(1, 30) + "[2026-03-02 10:11:12,345] torch.distributed.elastic.multiprocessing.api: "
                       "[WARNING] Sending process 4242 closing signal SIGTERM\n[2026-03-02 "
                       "10:11:13,000] torch.distributed.elastic.multiprocessing.api: [ERROR] "
                       "failed (exitcode: -9) local_rank: 2 (pid: 4244) of binary: "
                       "/opt/conda/bin/python\n"
        + traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", f"{_SITE}/torch/distributed/launcher/api.py:launch_agent:raise ChildFailedError(")
        + "======\ntrain.py FAILED\n------\nRoot Cause (first observed failure):\n[0]:\n  time    "
          "  : 2026-03-02_10:11:12\n  host      : gpu-n1\n  rank      : 2 (local_rank: 2)\n  "
          "exitcode  : -9 (pid: 4244)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) "
          "received by PID 4244\n", root_ranks=(2,)),
    Excerpt("elastic_sigterm", "torchrun's agent is asked to end", "killed", RESTART,
        steps(1, 30) + "WARNING:torch.distributed.elastic.agent.server.api:Received 15 death "
                       "signal, shutting down "
                       "workers\nWARNING:torch.distributed.elastic.multiprocessing.api:Sending "
                       "process 4242 closing signal SIGTERM\n"
        + traceback("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4200 "
                    "got signal: 15", f"{_SITE}/torch/distributed/run.py:main:run(args)")),
    Excerpt("nccl_timeout_rank7", "one rank behind", "collective_timeout", RESTART,
        "".join(f"[rank{r}]:[E302 10:11:12.{r}00 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog "
                "caught collective operation timeout: WorkNCCL(SeqNum=15734, OpType=ALLREDUCE, "
                "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600026 milliseconds before "
                f"timing out.\n[rank{r}]:[E302 10:11:12.{r}10 ProcessGroupNCCL.cpp:1785] [PG ID 0 "
                f"PG GUID 0 Rank {r}] Timeout at NCCL work: 15734, last enqueued NCCL work: "
                f"{15734 if r == 7 else 15740}, last completed NCCL work: 15733.\n" for r in range(8)), root_ranks=(7,)),
    Excerpt("libcuda_one_node", "one of two nodes lacks its driver", "import_error", RESTART,
        "".join(f"gpu-n2: {row}\n" for row in traceback("OSError: libcuda.so.1: cannot open "
                                                        "shared object file: No such file or "
                                                        "directory", "/work/train.py:<module>:import kernels", "/work/kernels.py:<module>:lib = ctypes.CDLL('libcuda.so.1')").splitlines())
        + "".join(f"gpu-n1: {row}\n" for row in traceback("torch.distributed.DistStoreError: "
                                                          "Timed out after 601 seconds waiting "
                                                          "for clients. 4/8 clients joined.", "/work/train.py:main:dist.init_process_group('nccl')").splitlines())),
    Excerpt("bad_image_late", "one bad record on one of four ranks", "data_error", RESTART,
        ranks={0: steps(5000, 5010), 1: steps(5000, 5010), 3: steps(5000, 5010), 2: steps(5000, 5010) + traceback("PIL.UnidentifiedImageError: cannot identify image file '/data/img/0012.jpg'", "/work/train.py:main:for batch in loader:", f"{_SITE}/torch/utils/data/_utils/fetch.py:fetch:data = [self.dataset[i] for i in idx]", "/work/data.py:__getitem__:img = Image.open(path)")}, root_ranks=(2,), ends=(RankEnd(2, exit_code=1),)),
    Excerpt("mount_lost", "a mount lost in the middle", "missing_file", RESTART,
        steps(20000, 20020) + traceback("FileNotFoundError: [Errno 2] No such file or directory: "
                                        "'/mnt/data/part-00911.parquet'", "/work/train.py:main:for batch in loader:", "/work/data.py:open_part:return pq.ParquetFile(path)")),
    Excerpt("thread_broken_pipe", "a logger's thread, then nothing", "unknown", UNKNOWN,
        steps(1, 30) + "Exception in thread SockSrvRdThr:\n" + traceback("BrokenPipeError: [Errno "
                                                                         "32] Broken pipe", f"{_SITE}/wandb/sdk/service/server_sock.py:run:shandler(sreq)")),
    Excerpt("config_dump_and_import", "a config dump that names node failures, and a missing "
                                      "module", "import_error", STOP,
        "config: retries=3 requeue_on=[NODE_FAIL, PREEMPTED, TIMEOUT] max_steps=5000\n" + traceback("ModuleNotFoundError: No module named 'flash_attn_2_cuda'", "/work/train.py:<module>:import model"),
        kernel="Feb 11 03:12:44 gpu-n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=991, GPU has "
               "fallen off the bus.\n"),
    Excerpt("vllm_port", "vLLM report: a port taken", "port_in_use", RESTART,
        "(APIServer pid=812) ERROR 03-02 10:11:12 [launcher.py:40] OSError: [Errno 98] error "
        "while attempting to bind on address ('0.0.0.0', 8000): address already in use\n"),
    Excerpt("glog_fatal", "a C++ trainer with glog", "abort", RESTART,
        "I0302 10:11:10.000000 4242 solver.cpp:239] Iteration 100 (2.1 iter/s, 47s/100 iters), "
        "loss = 1.2\nF0302 10:11:12.345678 4242 data_transformer.cpp:168] Check failed: height <= "
        "datum_height (227 vs. 224)\n*** Check failure stack trace: ***\n    @     0x7f2c  "
        "google::LogMessage::Fail()\nAborted (core dumped)\n"),
    Excerpt("mpirun_signal", "Open MPI's word on a rank", "killed", RESTART,
        steps(1, 20, "[1,0]<stdout>:step {n} loss {loss:.3f}") + "--------------------------------------------------------------------------\nmpirun noticed that process rank 3 with PID 4242 on node gpu-n2 exited on signal 9 (Killed).\n--------------------------------------------------------------------------\n", root_ranks=(3,)),
)  # fmt: skip
