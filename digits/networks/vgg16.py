# VGG-16: for comparison. Accurate, but large and slow.
#
# Designed for 224x224 color, random crops from 256x256; at least 32x32. 138,357,544 parameters for 1000
# classes.
# Recommended settings: SGD with momentum 0.9, learning rate 0.01 with a step every 33%, batches of 64, 74
# epochs, per-channel mean, crop 224, random horizontal flips.
#
# paper: Simonyan and Zisserman, 2014, “Very Deep Convolutional Networks for Large-Scale Image Recognition”,
# paper: configuration D.
# settings: solver_type=MOMENTUM momentum=0.9 learning_rate=0.01 lr_policy=step lr_step_size=33 lr_step_gamma=0.1
# settings: batch_size=64 train_epochs=74 use_mean=pixel aug_flip=fliplr crop_size=224
# few images: solver_type=ADAM learning_rate=0.0001 lr_policy=cosine lr_warmup=5 batch_size=32
# kinds: image-classification image-regression image-multilabel
# smallest: 32

from keras import layers, regularizers

# The number of convolutions and filters in each block.
BLOCKS = [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)]

# Weight decay of 0.0005; the gradient of L2(a) is 2a times the weight.
WEIGHT_DECAY = regularizers.L2(0.0005 / 2)


class UserModel(Tower):
    @model_property
    def inference(self):
        # Pixels are 0 to 255 minus the mean; 64 is about their standard deviation in photographs.
        net = self.x / 64.0
        for block, (convolutions, filters) in enumerate(BLOCKS, 1):
            for number in range(1, convolutions + 1):
                net = layers.Conv2D(
                    filters,
                    3,
                    padding="same",
                    activation="relu",
                    # He initialization preserves the variance. The authors trained a shallow network first and
                    # deepened it, because their deep networks did not converge otherwise.
                    kernel_initializer="he_normal",
                    kernel_regularizer=WEIGHT_DECAY,
                    name=f"conv{block}_{number}",
                )(net)
            net = layers.MaxPooling2D(2, name=f"pool{block}")(net)
        net = layers.Flatten()(net)
        net = self.fully_connected(net, "fc6")
        net = self.fully_connected(net, "fc7")
        return digits.scale_output(
            layers.Dense(self.nclasses, kernel_regularizer=WEIGHT_DECAY, name="fc8")(net)
        )

    def fully_connected(self, net, name):
        """4096 units with ReLU and dropout."""
        net = layers.Dense(
            4096,
            activation="relu",
            kernel_initializer="he_normal",
            kernel_regularizer=WEIGHT_DECAY,
            name=name,
        )(net)
        return layers.Dropout(0.5)(net, training=self.is_training)

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.loss(self.inference, self.y)
