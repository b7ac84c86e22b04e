//! From names to roles: which tensors a configuration calls for, and their shapes.

use gguf::Model as File;

use super::claim::Claims;
use super::{Block, Dsa, Ffn, HyperSite, Indexer, Kda, Mixer, Moe, NextN, SwiGlu, Weights};
use crate::config::{Config, MixerKind};
use crate::error::LoadError;

impl Weights {
    /// Claims every tensor of the file.
    ///
    /// # Errors
    /// A tensor is missing, unknown, of another shape than the metadata say, of a type without kernels, or a small one
    /// holds a value that is not finite.
    pub fn claim(file: &File, config: &Config) -> Result<Self, LoadError> {
        let mut claims = Claims::new(file);
        let c = config;
        let embed = match c.vocab {
            Some(vocab) => {
                claims.matrix("token_embd.weight", vocab, c.hidden, "vocab_size and embedding_length")?
            }
            None => claims.any_rows("token_embd.weight", c.hidden, "embedding_length")?,
        };
        let vocab = embed.rows;
        let head = |claims: &mut Claims<'_>, name: &str| {
            if claims.has(name) {
                claims.matrix(name, vocab, c.hidden, "vocab_size and embedding_length").map(Some)
            } else {
                Ok(None)
            }
        };
        let output = head(&mut claims, "output.weight")?.unwrap_or_else(|| embed.clone());
        let output_norm = claims.vector("output_norm.weight", c.hidden, "embedding_length")?;
        let blocks = (0..c.blocks).map(|i| block(&mut claims, c, i)).collect::<Result<Vec<_>, _>>()?;
        let nextn = if c.has_nextn() {
            let p = format!("blk.{}.nextn", c.trunk);
            let hidden = "embedding_length";
            Some(NextN {
                eh: claims.matrix(&format!("{p}.eh_proj.weight"), c.hidden, 2 * c.hidden, hidden)?,
                embed_norm: claims.vector(&format!("{p}.enorm.weight"), c.hidden, hidden)?,
                hidden_norm: claims.vector(&format!("{p}.hnorm.weight"), c.hidden, hidden)?,
                head_norm: claims.vector(&format!("{p}.shared_head_norm.weight"), c.hidden, hidden)?,
                embed: head(&mut claims, &format!("{p}.embed_tokens.weight"))?,
                head: head(&mut claims, &format!("{p}.shared_head_head.weight"))?,
            })
        } else {
            None
        };
        claims.finish()?;
        Ok(Self { embed, output_norm, output, blocks, nextn })
    }
}

fn block(claims: &mut Claims<'_>, c: &Config, i: usize) -> Result<Block, LoadError> {
    let p = format!("blk.{i}");
    let hyper = if i < c.trunk {
        Some(Box::new([hyper(claims, c, &p, "attn")?, hyper(claims, c, &p, "ffn")?]))
    } else {
        None
    };
    Ok(Block {
        attn_norm: claims.vector(&format!("{p}.attn_norm.weight"), c.hidden, "embedding_length")?,
        ffn_norm: claims.vector(&format!("{p}.ffn_norm.weight"), c.hidden, "embedding_length")?,
        mixer: match c.mixers[i] {
            MixerKind::Kda => Mixer::Kda(Box::new(kda(claims, c, &p)?)),
            MixerKind::Dsa => Mixer::Dsa(Box::new(dsa(claims, c, &p)?)),
        },
        ffn: if c.is_moe(i) {
            Ffn::Moe(Box::new(moe(claims, c, &p)?))
        } else {
            Ffn::Dense(Box::new(swiglu(claims, &p, "", c.dense_ff, c.hidden, "feed_forward_length")?))
        },
        hyper,
    })
}

fn hyper(claims: &mut Claims<'_>, c: &Config, p: &str, site: &str) -> Result<HyperSite, LoadError> {
    let because = "hyper_connection.count and embedding_length";
    let name = |part: &str| format!("{p}.hc_{site}_{part}.weight");
    let scale = claims.vector(&name("scale"), 3, "the three factors of pre, post and comb")?;
    Ok(HyperSite {
        mix: claims.matrix(&name("fn"), c.hc_rows(), c.residual(), because)?,
        base: claims.vector(&name("base"), c.hc_rows(), because)?,
        scale: [scale[0], scale[1], scale[2]],
    })
}

fn kda(claims: &mut Claims<'_>, c: &Config, p: &str) -> Result<Kda, LoadError> {
    let (inner, d, hidden) = (c.kda_inner(), c.kda_dim, c.hidden);
    let because = "attention.head_count, kda.head_dim and embedding_length";
    let mut conv = Vec::new();
    for part in ["q", "k", "v"] {
        conv.extend(claims.taps(&format!("{p}.ssm_conv1d_{part}.weight"), c.conv_taps, inner)?);
    }
    let mut matrix =
        |name: &str, rows, cols| claims.matrix(&format!("{p}.{name}.weight"), rows, cols, because);
    let (q, k, v) = (
        matrix("attn_q", inner, hidden)?,
        matrix("attn_k", inner, hidden)?,
        matrix("attn_v", inner, hidden)?,
    );
    let (f_a, f_b) = (matrix("ssm_f_a", d, hidden)?, matrix("ssm_f_b", inner, d)?);
    let (g_a, g_b) = (matrix("ssm_g_a", d, hidden)?, matrix("ssm_g_b", inner, d)?);
    let (beta, out) = (matrix("ssm_beta", c.heads, hidden)?, matrix("attn_output", hidden, inner)?);
    let a = claims.vector(&format!("{p}.ssm_a"), c.heads, "attention.head_count")?;
    if let Some(head) = a.iter().position(|a| *a >= 0.0) {
        return Err(LoadError::Value {
            key: format!("{p}.ssm_a"),
            value: format!("{} for head {head}", a[head]),
            problem: "it is -exp(A_log), which is negative".to_owned(),
        });
    }
    Ok(Kda {
        q,
        k,
        v,
        conv,
        f_a,
        f_b,
        dt: claims.vector(&format!("{p}.ssm_dt.bias"), inner, because)?,
        decay: a.iter().map(|a| -a).collect(),
        beta,
        g_a,
        g_b,
        norm: claims.vector(&format!("{p}.ssm_norm.weight"), d, "kda.head_dim")?,
        out,
    })
}

fn dsa(claims: &mut Claims<'_>, c: &Config, p: &str) -> Result<Dsa, LoadError> {
    let (hidden, rank, latent) = (c.hidden, c.q_rank, c.latent);
    let attention = "attention.head_count, the ranks and the head widths of attention.*";
    let indexer = "attention.indexer.*, q_lora_rank and embedding_length";
    let index = Indexer {
        q_b: claims.matrix(
            &format!("{p}.indexer.attn_q_b.weight"),
            c.index_heads * c.index_dim,
            rank,
            indexer,
        )?,
        k: claims.matrix(&format!("{p}.indexer.attn_k.weight"), c.index_dim, hidden, indexer)?,
        k_norm: claims.vector(&format!("{p}.indexer.k_norm.weight"), c.index_dim, indexer)?,
        k_bias: claims.vector(&format!("{p}.indexer.k_norm.bias"), c.index_dim, indexer)?,
        proj: claims.matrix(&format!("{p}.indexer.proj.weight"), c.index_heads, hidden, indexer)?,
        gate: claims.matrix(&format!("{p}.indexer_compressor_gate.weight"), c.index_dim, hidden, indexer)?,
        ape: claims.table(
            &format!("{p}.indexer_compressor_ape.weight"),
            c.kpool,
            c.index_dim,
            "attention.indexer.kpool and key_length",
        )?,
    };
    let name = |part: &str| format!("{p}.{part}.weight");
    Ok(Dsa {
        q_a: claims.matrix(&name("attn_q_a"), rank, hidden, attention)?,
        q_a_norm: claims.vector(&name("attn_q_a_norm"), rank, "attention.q_lora_rank")?,
        q_b: claims.matrix(&name("attn_q_b"), c.heads * c.key_dim, rank, attention)?,
        kv_a: claims.matrix(&name("attn_kv_a_mqa"), latent, hidden, attention)?,
        kv_a_norm: claims.vector(&name("attn_kv_a_norm"), latent, "attention.kv_lora_rank")?,
        k_b: claims.stack(&name("attn_k_b"), c.heads, latent, c.key_dim, attention)?,
        v_b: claims.stack(&name("attn_v_b"), c.heads, c.value_dim, latent, attention)?,
        out: claims.matrix(&name("attn_output"), hidden, c.heads * c.value_dim, attention)?,
        indexer: index,
    })
}

fn swiglu(
    claims: &mut Claims<'_>,
    p: &str,
    suffix: &str,
    width: usize,
    hidden: usize,
    because: &'static str,
) -> Result<SwiGlu, LoadError> {
    let name = |part: &str| format!("{p}.ffn_{part}{suffix}.weight");
    Ok(SwiGlu {
        gate: claims.matrix(&name("gate"), width, hidden, because)?,
        up: claims.matrix(&name("up"), width, hidden, because)?,
        down: claims.matrix(&name("down"), hidden, width, because)?,
    })
}

fn moe(claims: &mut Claims<'_>, c: &Config, p: &str) -> Result<Moe, LoadError> {
    let because = "expert_count, expert_feed_forward_length and embedding_length";
    let name = |part: &str| format!("{p}.ffn_{part}.weight");
    Ok(Moe {
        router: claims.matrix(&name("gate_inp"), c.experts, c.hidden, because)?,
        bias: claims.vector(&format!("{p}.exp_probs_b.bias"), c.experts, "expert_count")?,
        gate: claims.stack(&name("gate_exps"), c.experts, c.expert_ff, c.hidden, because)?,
        up: claims.stack(&name("up_exps"), c.experts, c.expert_ff, c.hidden, because)?,
        down: claims.stack(&name("down_exps"), c.experts, c.hidden, c.expert_ff, because)?,
        shared: swiglu(
            claims,
            p,
            "_shexp",
            c.shared_ff,
            c.hidden,
            "expert_shared_feed_forward_length (by default expert_feed_forward_length times expert_shared_count)",
        )?,
    })
}
