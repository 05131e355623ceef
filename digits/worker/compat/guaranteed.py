"""The names of TensorFlow 1 that networks can rely on, and the table of them in the documentation."""

from __future__ import annotations

# By module: names that work as in TensorFlow 1, including their names for variables.
GUARANTEED = {
    "tf": (
        "AUTO_REUSE GraphKeys Print Variable abs add add_n add_to_collection argmax assign assign_add "
        "assign_sub cast clip_by_global_norm clip_by_norm clip_by_value concat cond constant constant_initializer "
        "control_dependencies convert_to_tensor device div equal exp expand_dims eye fill float32 gather "
        "get_collection get_default_graph get_variable get_variable_scope global_variables "
        "global_variables_initializer glorot_uniform_initializer gradients group histogram_fixed_width "
        "histogram_summary identity image_summary int32 int64 log make_template map_fn matmul maximum merge_summary "
        "minimum mul multiply name_scope neg no_op norm one_hot ones ones_initializer ones_like pack pad "
        "placeholder_with_default pow py_func random_crop random_normal random_normal_initializer random_shuffle "
        "random_uniform random_uniform_initializer range reduce_max reduce_mean reduce_min reduce_prod reduce_sum "
        "repeat reshape reverse scalar_summary scan select set_random_seed shape sigmoid sign size slice split sqrt "
        "square squared_difference squeeze stack stop_gradient sub subtract tanh tensordot tile to_float to_int32 "
        "to_int64 trainable_variables transpose truncated_normal truncated_normal_initializer unpack unstack "
        "variable_scope variance_scaling_initializer where while_loop zeros zeros_initializer zeros_like"
    ),
    "tf.nn": (
        "atrous_conv2d avg_pool batch_normalization bias_add bidirectional_dynamic_rnn conv1d conv2d conv2d_transpose "
        "conv3d crelu depthwise_conv2d dilation2d dropout dynamic_rnn elu embedding_lookup fused_batch_norm in_top_k "
        "l2_loss l2_normalize leaky_relu local_response_normalization log_softmax lrn max_pool moments relu relu6 rnn "
        "selu separable_conv2d sigmoid sigmoid_cross_entropy_with_logits softmax softmax_cross_entropy_with_logits "
        "softmax_cross_entropy_with_logits_v2 softplus softsign sparse_softmax_cross_entropy_with_logits static_rnn "
        "static_bidirectional_rnn tanh top_k weighted_cross_entropy_with_logits"
    ),
    "tf.nn.rnn_cell": (
        "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell "
        "ResidualWrapper"
    ),
    "tf.layers": (
        "average_pooling1d average_pooling2d average_pooling3d batch_normalization conv1d conv2d conv2d_transpose "
        "conv3d conv3d_transpose dense dropout flatten max_pooling1d max_pooling2d max_pooling3d separable_conv1d "
        "separable_conv2d"
    ),
    "tf.losses": (
        "absolute_difference add_loss compute_weighted_loss cosine_distance get_losses get_regularization_loss "
        "get_regularization_losses get_total_loss hinge_loss huber_loss log_loss mean_pairwise_squared_error "
        "mean_squared_error sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy"
    ),
    "tf.image": "resize resize_bilinear resize_images resize_nearest_neighbor",
    "tf.random": "normal",
    "tf.summary": "FileWriter histogram image merge merge_all scalar text",
    "tf.train": (
        "ExponentialMovingAverage Saver exponential_decay get_global_step get_or_create_global_step "
        "init_from_checkpoint"
    ),
    "tf.contrib.layers": (
        "avg_pool2d batch_norm conv2d conv2d_transpose dropout flatten fully_connected group_norm instance_norm "
        "l1_regularizer l2_regularizer layer_norm linear max_pool2d separable_conv2d variance_scaling_initializer "
        "xavier_initializer xavier_initializer_conv2d"
    ),
    "tf.contrib.rnn": (
        "BasicLSTMCell BasicRNNCell DropoutWrapper GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell static_rnn "
        "static_bidirectional_rnn"
    ),
    "tf.contrib.framework": "add_arg_scope arg_scope get_or_create_global_step get_variables",
    "slim": (
        "add_arg_scope arg_scope avg_pool2d batch_norm bias_add conv1d conv2d conv2d_in_plane conv2d_transpose conv3d "
        "conv3d_transpose convolution2d dropout elu flatten fully_connected get_variables "
        "get_variables_to_restore group_norm instance_norm l1_l2_regularizer l1_regularizer l2_regularizer layer_norm "
        "linear max_pool2d max_pool3d maxout model_variable one_hot_encoding relu relu6 repeat separable_conv2d "
        "softmax spatial_softmax stack unit_norm variable variance_scaling_initializer xavier_initializer"
    ),
    "slim.losses": (
        "absolute_difference add_loss cosine_distance get_losses get_regularization_losses get_total_loss hinge_loss "
        "log_loss mean_squared_error sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy"
    ),
    "slim.nets": "alexnet inception overfeat resnet_v1 resnet_v2 vgg",
}


def names_table() -> str:
    """Return the table of guaranteed names, in Markdown."""
    rows = [
        f"| `{module}` | {', '.join(f'`{name}`' for name in names.split())} |"
        for module, names in GUARANTEED.items()
    ]
    return "\n".join(["| Module | Names |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(names_table())
