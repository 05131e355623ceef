# U-Net: predicts a class for every pixel. Ronneberger, Fischer and Brox, 2015, “U-Net: Convolutional
# Networks for Biomedical Image Segmentation”, with borders kept and batch normalization.
#
# Designed for images whose sides are multiples of 16. Labels are images too, [N, H, W] or [N, H, W, 1]:
# the number of each pixel's class. The output has a score for each pixel and class: [N, H, W, classes].
# Recommended settings: Adam, learning rate 0.001, batches of 4, 30 epochs, per-channel mean.
#
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=4 train_epochs=30 use_mean=pixel
# kinds: image-segmentation

from keras import layers

# Filters at each depth: a quarter of the paper's 64 to 1024.
WIDTHS = [16, 32, 64, 128]
DEEPEST = 256


class UserModel(Tower):
    @model_property
    def inference(self):
        net = self.x / 64.0
        passed = []
        # Encoder: halve the resolution and increase the receptive field.
        for depth, filters in enumerate(WIDTHS, 1):
            net = self.two_convolutions(net, filters, f"down{depth}")
            passed.append(net)
            net = layers.MaxPooling2D(2)(net)
        net = self.two_convolutions(net, DEEPEST, "bottom")
        # Decoder: upsample and concatenate the features of the same resolution.
        for depth, filters in reversed(list(enumerate(WIDTHS, 1))):
            net = layers.Conv2DTranspose(filters, 2, strides=2, padding="same", name=f"enlarge{depth}")(net)
            net = tf.concat([passed.pop(), net], axis=3)
            net = self.two_convolutions(net, filters, f"up{depth}")
        return layers.Conv2D(max(2, self.nclasses or 0), 1, name="scores")(net)

    def two_convolutions(self, net, filters, name):
        for number in (1, 2):
            net = layers.Conv2D(
                filters,
                3,
                padding="same",
                use_bias=False,
                kernel_initializer="he_normal",
                name=f"{name}_conv{number}",
            )(net)
            normalize = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm{number}")
            net = tf.nn.relu(normalize(net, training=self.is_training))
        return net

    @model_property
    def loss(self):
        height, width, _ = self.input_shape
        scores = self.inference
        classes = tf.cast(tf.reshape(self.y, [-1, height, width]), tf.int64)
        right = tf.cast(tf.equal(tf.argmax(scores, axis=3), classes), tf.float32)
        self.summaries.append(tf.summary.scalar("accuracy", tf.reduce_mean(right)))
        # Mean over all pixels of all images.
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=scores))
