//! What newcomers hand in, and what they are told.

use super::super::parse_job;

fn told(text: &str) -> String {
    parse_job("job", text).unwrap_err().to_string()
}

/// The suggestion inside a message, completed as its reader would.
fn completed(message: &str) -> String {
    let (_, suggested) = message.split_once("; write ").unwrap();
    let suggested = suggested.split("; not taken over").next().unwrap();
    suggested.replace("NAME", "a").replace("TENANT", "lab")
}

#[test]
fn a_slurm_script_is_told_as_a_job_file() {
    let script = "#!/bin/bash
#SBATCH --job-name=Train_7B
#SBATCH --nodes=2 --ntasks-per-node=4   # one rank a GPU
#SBATCH --gres=gpu:a100:4
#SBATCH -c 8
#SBATCH --mem=512G
#SBATCH -t 1-12:30:00
#SBATCH --partition=gpu
#SBATCH --exclusive
srun python train.py
";
    let message = told(script);
    assert_eq!(
        message,
        "job:2: this is a Slurm batch script; Wharf takes a job file, which says what a job needs and not what it \
         runs; write {name: train-7b, tenant: TENANT, tasks: 2, gpus: 4, gpu: {model: a100}, cpu: 32, memory: 512GiB, \
         time: {limit: 1d12h30m}}; not taken over: --partition, --exclusive"
    );
    parse_job("suggested", &completed(&message)).unwrap();
}

#[test]
fn every_form_of_a_directive_is_read() {
    for (directive, key) in [
        ("--gres=gpu:4", "gpus: 4}"),
        ("--gres gpu:2", "gpus: 2}"),
        ("--gpus-per-node=h100:8", "gpus: 8, gpu: {model: h100}}"),
        ("--gpus=16 -N 2", "tasks: 2, gpus: 8}"),
        ("-n4 -G 4", "tasks: 4, gpus: 1}"),
        ("--time=90", "time: {limit: 1h30m}}"),
        ("--time=10:00", "time: {limit: 10m}}"),
        ("-t 2-12", "time: {limit: 2d12h}}"),
        ("--mem=2048", "memory: 2048MiB}"),
        ("-A team", "tenant: team, gpus: 1}"),
    ] {
        let message = told(&format!("#!/bin/sh\n#SBATCH {directive}\n"));
        assert!(message.contains(key), "{directive}: {message}");
        parse_job("suggested", &completed(&message)).unwrap();
    }
    for strange in ["--gres=", "--time=tomorrow", "--nodes=many", "--gpus=-1 --gpus", "--mem=1e9 -", "--"] {
        told(&format!("#SBATCH {strange}\n"));
    }
}

#[test]
fn a_script_of_any_shell_is_recognised() {
    assert_eq!(
        told("#!/usr/bin/env python\nprint('x')\n"),
        "job:1: this is a script; Wharf takes a job file, which says what a job needs and not what it runs; \
         write {name: NAME, tenant: TENANT, gpus: 1}"
    );
}

#[test]
fn a_manifest_is_told_as_a_job_file() {
    let manifest = "apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {name: other}}
spec:
  parallelism: 4
  activeDeadlineSeconds: 5400
  template:
    spec:
      containers:
        - name: main
          image: pytorch
          resources:
            limits: {nvidia.com/gpu: 8, cpu: 32, memory: 256Gi}
";
    let message = told(manifest);
    assert_eq!(
        message,
        "job:1: this is a Kubernetes Job manifest; Wharf takes a job file of its own; write {name: train, tenant: \
         TENANT, tasks: 4, gpus: 8, cpu: 32, memory: 256Gi, time: {limit: 1h30m}}"
    );
    parse_job("suggested", &completed(&message)).unwrap();
    let several = format!("{manifest}---\napiVersion: v1\nkind: Service\n");
    assert!(told(&several).contains("Kubernetes Job manifest"), "{}", told(&several));
    let json = r#"{"kind": "Pod", "metadata": {"name": "p"}, "spec": {}}"#;
    assert!(told(json).contains("this is a Kubernetes Pod manifest"), "{}", told(json));
}

#[test]
fn keys_of_container_files_say_what_wharf_takes() {
    let job = |rest: &str| told(&format!("name: a\ntenant: lab\n{rest}\n"));
    let image = job("image: pytorch:2.4");
    assert!(
        image.starts_with("job:3: image says what a container runs; a Wharf job says what it needs"),
        "{image}"
    );
    assert!(job("command: [python, train.py]").contains("simulate: {duration: 30m}"));
    assert_eq!(
        job("resources: {limits: {nvidia.com/gpu: 2, cpu: 4, memory: 16Gi}}"),
        "job:3: resources is no key of a job file: GPUs, cores and memory are keys of the job itself; \
         write gpus: 2, cpu: 4, memory: 16Gi"
    );
}
