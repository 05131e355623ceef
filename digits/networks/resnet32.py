# ResNet-32: accurate on small color images such as those of CIFAR-10; slower than LeNet.
#
# Designed for 32x32 color; any size works. 464,154 parameters for 10 classes.
# Recommended settings for CIFAR-10: SGD with momentum 0.9, learning rate 0.1 falling to a tenth at 50%
# and 75%, batches of 128, 164 epochs, mean image. About 92.5% accuracy with random flips, padding by 4
# pixels, and cropping.
#
# paper: He et al., 2015, “Deep Residual Learning for Image Recognition”, section 4.2, with shortcuts without weights
# paper: (option A).
# settings: solver_type=MOMENTUM momentum=0.9 learning_rate=0.1 lr_policy=multistep lr_multistep_values=50,75
# settings: lr_multistep_gamma=0.1 batch_size=128 train_epochs=164 use_mean=image aug_flip=fliplr aug_pad_crop=4
# few images: solver_type=ADAM learning_rate=0.003 lr_policy=cosine lr_warmup=5 batch_size=32
# kinds: image-classification image-regression image-multilabel

from keras import layers, regularizers

# The depth is 6 times this plus 2: 3 gives ResNet-20, 9 ResNet-56, 18 ResNet-110.
BLOCKS = 5

# Weight decay of 0.0001; the gradient of L2(a) is 2a times the weight.
WEIGHT_DECAY = regularizers.L2(0.0001 / 2)


class UserModel(Tower):
    @model_property
    def inference(self):
        # Pixels are 0 to 255 minus the mean; 64 is about their standard deviation in photographs.
        net = self.x / 64.0
        net = tf.nn.relu(self.convolution(net, 16, 1, "first"))
        for stage, filters in enumerate([16, 32, 64], 1):
            for block in range(1, BLOCKS + 1):
                stride = 2 if stage > 1 and block == 1 else 1
                net = self.residual(net, filters, stride, f"stage{stage}_block{block}")
        net = layers.GlobalAveragePooling2D()(net)
        net = layers.Dense(
            self.nclasses, kernel_initializer="he_normal", kernel_regularizer=WEIGHT_DECAY, name="classifier"
        )(net)
        return digits.scale_output(net)

    def residual(self, net, filters, stride, name):
        """A residual block of two convolutions."""
        added = tf.nn.relu(self.convolution(net, filters, stride, f"{name}_conv1"))
        added = self.convolution(added, filters, 1, f"{name}_conv2")
        if stride > 1:
            # Subsample, and pad the channels with zeros.
            new = filters - net.shape[3]
            net = tf.pad(net[:, ::stride, ::stride, :], [[0, 0], [0, 0], [0, 0], [new // 2, new - new // 2]])
        return tf.nn.relu(net + added)

    def convolution(self, net, filters, stride, name):
        """A 3x3 convolution without bias, and batch normalization."""
        net = layers.Conv2D(
            filters,
            3,
            strides=stride,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            kernel_regularizer=WEIGHT_DECAY,
            name=name,
        )(net)
        # Validation uses the moving averages: with a momentum of 0.9 they converge after a few dozen steps.
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_norm")(
            net, training=self.is_training
        )

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.loss(self.inference, self.y)
