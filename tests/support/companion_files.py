"""Small files of companion loads: settings of DLIO, and an operation log of a KV cache."""

from __future__ import annotations

DLIO = """
model:
  name: tiny
  type: transformer
  num_layers: 5
  parallelism: {tensor: 2, pipeline: 2, zero_stage: 1}
  transformer: {vocab_size: 1000, hidden_size: 256, ffn_hidden_size: 640, num_attention_heads: 8, num_kv_heads: 2}
framework: pytorch
checkpoint: {checkpoint_folder: c, time_between_checkpoints: 5, num_checkpoints_write: 2, num_checkpoints_read: 1}
"""
LOG = """Timestamp,Operation,Object_Size_Bytes,Tier,Key,Phase
1790000000.000000,Write,4000,Tier-0,a,Prefill
1790000000.001000,Read,4000,Tier-0,a,Evict
1790000000.001500,Write,4000,Tier-1,a,Evict
1790000000.002000,Write,7000,Tier-2,b,Evict
1790000000.004000,Read,4000,Tier-1,a,Decode
"""
