//! `KubeProxyConfiguration`: decoding, defaults, validation, and what of it decides what traffic should do.
